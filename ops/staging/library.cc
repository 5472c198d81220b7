#include "ops/staging/library.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

namespace tf_strategies {
namespace {

std::atomic<const TfsCudaFunctions*> loaded{nullptr};

}  // namespace

Status LoadCuda(const std::string& path) {
  static auto* const mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  if (Cuda() != nullptr) return Status::Ok();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return FailedPrecondition(path + " does not load: " + (why == nullptr ? "unknown reason" : why));
  }
  using Find = const TfsCudaFunctions* (*)(int);
  const auto find = reinterpret_cast<Find>(dlsym(library, TFS_CUDA_FUNCTIONS));
  const TfsCudaFunctions* const functions = find == nullptr ? nullptr : find(kTfsCudaVersion);
  if (functions == nullptr) {
    dlclose(library);
    return FailedPrecondition(path + " was built from another version of tf_strategies; build it again");
  }
  loaded.store(functions, std::memory_order_release);
  return Status::Ok();
}

const TfsCudaFunctions* Cuda() { return loaded.load(std::memory_order_acquire); }

Status StatusOfCuda(TfsCudaError error, const char* what) {
  return error == nullptr ? Status::Ok() : Internal(std::string(what) + ": " + error);
}

}  // namespace tf_strategies
