// TfStrategies>FirstBatchesDataset: a dataset that passes the first elements of each iteration to a function,
// and returns all elements.
//
// `Dataset.map` could do the same, but it calls a function for every element, which takes a tenth of the time
// of a short step. The name ends with "Dataset", because in eager code TensorFlow caches the kernels of all
// other operations, 50 KB for each function.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/data/captured_function.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_strategies {
namespace {

using tensorflow::AttrValue;
using tensorflow::Node;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::data::CapturedFunction;
using tensorflow::data::DatasetBase;
using tensorflow::data::FunctionMetadata;
using tensorflow::data::InstantiatedCapturedFunction;
using tensorflow::data::IteratorContext;
using tensorflow::data::IteratorStateReader;
using tensorflow::data::IteratorStateWriter;

REGISTER_OP("TfStrategies>FirstBatchesDataset")
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("batches: int >= 0")
    .Attr("watch: int")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Shows the first elements of each iteration to a function, and hands on all elements as they are.

input_dataset: [], the dataset.
other_arguments: What f captures.
handle: [], the dataset with the same elements.
f: Is called with the number of the iteration, the number of the element (both [] int64, from 0) and the components.
   What it returns is not used.
batches: How many elements of each iteration f sees.
watch: Iterations are counted for each number given here, over all datasets and copies of a dataset with this number.
)doc");

// TensorFlow copies datasets when it rewrites their graph for an iterator, so the count is not part of them.
int64_t NextIteration(int64_t watch) {
  static auto* const mutex = new std::mutex;
  static auto* const counts = new std::map<int64_t, int64_t>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return (*counts)[watch]++;
}

class FirstBatchesDataset final : public DatasetBase {
 public:
  struct Options {
    int64_t batches = 0;
    int64_t watch = 0;
  };

  FirstBatchesDataset(OpKernelContext* context, const DatasetBase* input,
                      std::unique_ptr<CapturedFunction> function, Options options)
      : DatasetBase(tensorflow::data::DatasetContext(context)),
        input_(input),
        function_(std::move(function)),
        options_(options) {
    input_->Ref();
  }
  ~FirstBatchesDataset() override { input_->Unref(); }

  std::unique_ptr<tensorflow::data::IteratorBase> MakeIteratorInternal(
      const std::string& prefix) const override {
    return std::make_unique<Iterator>(Iterator::Params{this, prefix + "::FirstBatches"});
  }
  const tensorflow::DataTypeVector& output_dtypes() const override { return input_->output_dtypes(); }
  const std::vector<tensorflow::PartialTensorShape>& output_shapes() const override {
    return input_->output_shapes();
  }
  std::string DebugString() const override { return "TfStrategies::FirstBatches"; }
  int64_t CardinalityInternal(tensorflow::data::CardinalityOptions options) const override {
    return input_->Cardinality(options);
  }
  absl::Status InputDatasets(std::vector<const DatasetBase*>* inputs) const override {
    inputs->push_back(input_);
    return absl::OkStatus();
  }
  absl::Status CheckExternalState() const override { return input_->CheckExternalState(); }

 protected:
  absl::Status AsGraphDefInternal(tensorflow::data::SerializationContext* context,
                                  DatasetGraphDefBuilder* builder, Node** output) const override {
    Node* input = nullptr;
    TF_RETURN_IF_ERROR(builder->AddInputDataset(context, input_, &input));
    std::vector<Node*> captured;
    tensorflow::DataTypeVector captured_types;
    TF_RETURN_IF_ERROR(function_->AddToGraph(context, builder, &captured, &captured_types));
    AttrValue function, types, batches, watch;
    builder->BuildAttrValue(function_->func(), &function);
    builder->BuildAttrValue(captured_types, &types);
    builder->BuildAttrValue(options_.batches, &batches);
    builder->BuildAttrValue(options_.watch, &watch);
    return builder->AddDataset(
        this, {{0, input}}, {{1, captured}},
        {{"f", function}, {"Targuments", types}, {"batches", batches}, {"watch", watch}}, output);
  }

 private:
  class Iterator final : public tensorflow::data::DatasetIterator<FirstBatchesDataset> {
   public:
    using tensorflow::data::DatasetIterator<FirstBatchesDataset>::DatasetIterator;

    absl::Status Initialize(IteratorContext* context) override {
      iteration_ = NextIteration(dataset()->options_.watch);
      TF_RETURN_IF_ERROR(dataset()->function_->Instantiate(context, &function_));
      return dataset()->input_->MakeIterator(context, this, prefix(), &input_);
    }

    absl::Status GetNextInternal(IteratorContext* context, std::vector<Tensor>* element,
                                 bool* ended) override {
      TF_RETURN_IF_ERROR(input_->GetNext(context, element, ended));
      if (*ended || next_.load() >= dataset()->options_.batches) return absl::OkStatus();
      return Show(context, next_.fetch_add(1), *element);
    }

   protected:
    std::shared_ptr<tensorflow::data::model::Node> CreateNode(
        IteratorContext*, tensorflow::data::model::Node::Args arguments) const override {
      return tensorflow::data::model::MakeKnownRatioNode(std::move(arguments), 1);
    }
    absl::Status SaveInternal(tensorflow::data::SerializationContext* context,
                              IteratorStateWriter* writer) override {
      TF_RETURN_IF_ERROR(SaveInput(context, writer, input_));
      return writer->WriteScalar(prefix(), "next", next_.load());
    }
    absl::Status RestoreInternal(IteratorContext* context, IteratorStateReader* reader) override {
      TF_RETURN_IF_ERROR(RestoreInput(context, reader, input_));
      int64_t next = 0;
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), "next", &next));
      next_.store(next);
      return absl::OkStatus();
    }

   private:
    absl::Status Show(IteratorContext* context, int64_t batch, const std::vector<Tensor>& element) {
      std::vector<Tensor> arguments{Tensor(iteration_), Tensor(batch)};
      arguments.insert(arguments.end(), element.begin(), element.end());
      std::vector<Tensor> unused;
      return function_->Run(context, std::move(arguments), &unused, model_node());
    }

    int64_t iteration_ = 0;
    std::atomic<int64_t> next_{0};  // the number of the next element
    std::unique_ptr<InstantiatedCapturedFunction> function_;
    std::unique_ptr<tensorflow::data::IteratorBase> input_;
  };

  const DatasetBase* const input_;
  const std::unique_ptr<CapturedFunction> function_;
  const Options options_;
};

class FirstBatchesKernel final : public tensorflow::data::UnaryDatasetOpKernel {
 public:
  explicit FirstBatchesKernel(OpKernelConstruction* construction) : UnaryDatasetOpKernel(construction) {
    OP_REQUIRES_OK(construction, FunctionMetadata::Create(construction, "f", {}, &function_));
    OP_REQUIRES_OK(construction, construction->GetAttr("batches", &options_.batches));
    OP_REQUIRES_OK(construction, construction->GetAttr("watch", &options_.watch));
  }

 protected:
  void MakeDataset(OpKernelContext* context, DatasetBase* input, DatasetBase** output) override {
    std::unique_ptr<CapturedFunction> function;
    OP_REQUIRES_OK(context, CapturedFunction::Create(context, function_, "other_arguments", &function));
    *output = new FirstBatchesDataset(context, input, std::move(function), options_);
  }

 private:
  std::shared_ptr<FunctionMetadata> function_;
  FirstBatchesDataset::Options options_;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>FirstBatchesDataset").Device(tensorflow::DEVICE_CPU),
                        FirstBatchesKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>FirstBatchesDataset")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("input_dataset")
                            .HostMemory("handle"),
                        FirstBatchesKernel);

}  // namespace
}  // namespace tf_strategies
