# Builds and tests the C++ core, which needs no TensorFlow: everything under ops/ but kernels/.
#
#   make -f ops/core.mk test LIBUCX=<folder with include/ and lib/> [GTEST=<prefix>] [CORE_BUILD=.build/core] [SANITIZE=address,undefined]
#
# Every tests/core/**/*_test.cc becomes a program of its own, every .cc of ops/tools/ and ops/bench/ a program in $(CORE_BUILD)/bin; what else lies
# in tests/core/ is linked to all tests. FILTER=<parts of paths> runs only the tests that carry one of them, and
# EXCEPT=<parts of paths> those that carry none. EMULATOR=<command> runs each, after a cross compiler, CXX=<command>.
#
# Every tests/core/fuzz/*_fuzz.cc becomes one too, with what else lies there in the place of googletest: it runs for some seconds.
#
# `libfuzzer` runs one of them, FUZZ=frames, by libFuzzer for SECONDS, from the files in FUZZ_SEEDS: see `fuzz` in the Makefile.
#
# The same holds for .cu, where there is nvcc: NVCC=<path> names one, NVCC= leaves CUDA out. Tests that need a GPU end with 77 where there
# is none and are reported as skipped.
CORE_BUILD ?= .build/core
SANITIZE ?=
FILTER ?=
EXCEPT ?=
EMULATOR ?=
TEST_SECONDS ?= 600
CXX ?= g++
# -g1: lines for stack traces. A debugger wants OPTIMIZE='-O0 -g'.
OPTIMIZE ?= -O2 -g1
OPTIMIZE_TESTS ?= $(OPTIMIZE)
WERROR ?= -Werror
ifndef GTEST
GTEST := $(shell tools/find_googletest.sh)
endif
$(if $(GTEST),,$(error googletest is missing))
$(if $(wildcard $(LIBUCX)/include/ucp/api/ucp.h),,$(error LIBUCX=$(LIBUCX) has no include/ucp/api/ucp.h: name the folder of the package libucx))

LAYERS := base schedule analysis reduce compress cuda staging transport communicator channel confine ledger
find_sources = $(shell find $(1) -name '*.cc' 2>/dev/null | LC_ALL=C sort)
CORE_SOURCES := $(foreach layer,$(LAYERS),$(call find_sources,ops/$(layer)))
TOOL_SOURCES := $(call find_sources,ops/tools ops/bench)
TEST_SOURCES := $(filter %_test.cc,$(call find_sources,tests/core))
FUZZ_SOURCES := $(filter %_fuzz.cc,$(call find_sources,tests/core/fuzz))
FUZZ_SUPPORT_SOURCES := $(filter-out %_fuzz.cc,$(call find_sources,tests/core/fuzz))
SUPPORT_SOURCES := $(filter-out %_test.cc $(FUZZ_SOURCES) $(FUZZ_SUPPORT_SOURCES),$(call find_sources,tests/core))

object = $(patsubst %.cc,$(CORE_BUILD)/%.o,$(1))
OBJECTS := $(call object,$(CORE_SOURCES) $(TOOL_SOURCES) $(TEST_SOURCES) $(SUPPORT_SOURCES) $(FUZZ_SOURCES) $(FUZZ_SUPPORT_SOURCES))
TOOLS := $(addprefix $(CORE_BUILD)/bin/,$(basename $(notdir $(TOOL_SOURCES))))
TESTS := $(patsubst %.cc,$(CORE_BUILD)/%,$(TEST_SOURCES))
FUZZ_TARGETS := $(patsubst %.cc,$(CORE_BUILD)/%,$(FUZZ_SOURCES))
# The tests of $(1) that carry one of the parts of paths in $(2).
with_part = $(foreach test,$(1),$(if $(strip $(foreach part,$(2),$(findstring $(part),$(test)))),$(test)))
selected = $(filter-out $(call with_part,$(1),$(EXCEPT)),$(if $(FILTER),$(call with_part,$(1),$(FILTER)),$(1)))
SELECTED := $(call selected,$(TESTS) $(FUZZ_TARGETS))

CPPFLAGS += -I. -isystem $(LIBUCX)/include $(if $(filter /usr,$(GTEST)),,-isystem $(GTEST)/include)
OPTIMIZING = $(OPTIMIZE)
$(CORE_BUILD)/tests/%.o: OPTIMIZING = $(OPTIMIZE_TESTS)
CXXFLAGS += -std=c++17 $(OPTIMIZING) -fPIC -pthread -Wall -Wextra $(WERROR) $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer)
LDFLAGS += -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE))
UCX_LIBS := -L$(LIBUCX)/lib -lucp -lucs -Wl,-rpath,$(LIBUCX)/lib -ldl
GTEST_LIBS := $(firstword $(wildcard $(GTEST)/lib/*/libgtest_main.a $(GTEST)/lib/libgtest_main.a)) \
              $(firstword $(wildcard $(GTEST)/lib/*/libgtest.a $(GTEST)/lib/libgtest.a))

# Architectures of GPUs for which there is code; for later ones the driver compiles that of the last.
CUDA_ARCHITECTURES ?= 80 90
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA := $(if $(NVCC),$(if $(SANITIZE),,yes))
WITHOUT_CUDA := ops/cuda was not compiled: $(if $(NVCC),the sanitizers do not see device code,nvcc is missing)
find_cuda = $(if $(CUDA),$(shell find $(1) -name '*.cu' 2>/dev/null | LC_ALL=C sort))
CUDA_SOURCES := $(call find_cuda,ops/cuda)
CUDA_TOOL_SOURCES := $(call find_cuda,ops/tools ops/bench)
CUDA_TEST_SOURCES := $(filter %_test.cu,$(call find_cuda,tests/core))
CUDA_SUPPORT_SOURCES := $(filter-out %_test.cu,$(call find_cuda,tests/core))
cuda_object = $(patsubst %.cu,$(CORE_BUILD)/%.cu.o,$(1))
CUDA_OBJECTS := $(call cuda_object,$(CUDA_SOURCES) $(CUDA_TOOL_SOURCES) $(CUDA_TEST_SOURCES) $(CUDA_SUPPORT_SOURCES))
CUDA_TOOLS := $(addprefix $(CORE_BUILD)/bin/,$(basename $(notdir $(CUDA_TOOL_SOURCES))))
CUDA_TESTS := $(patsubst %.cu,$(CORE_BUILD)/%,$(CUDA_TEST_SOURCES))
SELECTED += $(call selected,$(CUDA_TESTS))

# --fmad=false: a product and a sum are two roundings, as on the CPU.
comma := ,
NVCCFLAGS += -std=c++17 -O2 --fmad=false $(if $(WERROR),--Werror all-warnings) -Xcompiler -pthread,-Wall,-Wextra$(addprefix $(comma),$(WERROR)) \
             $(foreach number,$(CUDA_ARCHITECTURES),-gencode arch=compute_$(number)$(comma)code=sm_$(number)) \
             -gencode arch=compute_$(lastword $(CUDA_ARCHITECTURES))$(comma)code=compute_$(lastword $(CUDA_ARCHITECTURES))

.PHONY: all test tools libfuzzer
.DELETE_ON_ERROR:
.SECONDARY: $(OBJECTS) $(CUDA_OBJECTS)

all: tools $(TESTS) $(FUZZ_TARGETS) $(CUDA_TESTS)
tools: $(TOOLS) $(CUDA_TOOLS)

$(CORE_BUILD)/%.o: %.cc ops/core.mk
	@mkdir -p $(@D)
	@echo "  CXX  $<"
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@

$(CORE_BUILD)/libcore.a: $(call object,$(CORE_SOURCES))
	@rm -f $@
	@ar qcs $@ $^

$(TESTS): %: %.o $(call object,$(SUPPORT_SOURCES)) $(CORE_BUILD)/libcore.a
	@echo "  LD   $@"
	@$(CXX) $(LDFLAGS) $^ $(GTEST_LIBS) $(UCX_LIBS) -o $@

$(FUZZ_TARGETS): %: %.o $(call object,$(FUZZ_SUPPORT_SOURCES)) $(CORE_BUILD)/libcore.a
	@echo "  LD   $@"
	@$(CXX) $(LDFLAGS) $^ $(UCX_LIBS) -o $@

define link_tool
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CXX) $(LDFLAGS) $^ $(UCX_LIBS) -o $@
endef

$(CORE_BUILD)/bin/%: $(CORE_BUILD)/ops/tools/%.o $(CORE_BUILD)/libcore.a
	$(link_tool)

$(CORE_BUILD)/bin/%: $(CORE_BUILD)/ops/bench/%.o $(CORE_BUILD)/libcore.a
	$(link_tool)

$(CORE_BUILD)/%.cu.o: %.cu ops/core.mk
	@mkdir -p $(@D)
	@echo "  NVCC $<"
	@$(NVCC) $(CPPFLAGS) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(CORE_BUILD)/libcuda_core.a: $(call cuda_object,$(CUDA_SOURCES))
	@rm -f $@
	@ar qcs $@ $^

define link_cuda
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(NVCC) $^ $(GTEST_LIBS) -o $@
endef

$(CUDA_TESTS): %: %.cu.o $(call cuda_object,$(CUDA_SUPPORT_SOURCES)) $(CORE_BUILD)/libcuda_core.a $(CORE_BUILD)/libcore.a
	$(link_cuda)

$(CORE_BUILD)/bin/%: $(CORE_BUILD)/ops/bench/%.cu.o $(CORE_BUILD)/libcuda_core.a $(CORE_BUILD)/libcore.a
	$(link_cuda)

test: tools $(SELECTED)
	@$(if $(CUDA),:,echo "  $(WITHOUT_CUDA)")
	@EMULATOR="$(EMULATOR)" tools/run_core_tests.sh $(TEST_SECONDS) $(SELECTED)

# libFuzzer has a main of its own, and seeds from a folder.
LIBFUZZER := $(CORE_BUILD)/libfuzzer/$(FUZZ)
$(LIBFUZZER): $(CORE_BUILD)/tests/core/fuzz/$(FUZZ)_fuzz.o $(filter-out %/driver.o,$(call object,$(FUZZ_SUPPORT_SOURCES))) $(CORE_BUILD)/libcore.a
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CXX) $(LDFLAGS) -fsanitize=fuzzer $^ $(UCX_LIBS) -o $@

libfuzzer: $(LIBFUZZER)
	@mkdir -p .build/fuzz/$(FUZZ)
	$(LIBFUZZER) -max_total_time=$(SECONDS) -print_final_stats=1 -max_len=8192 -artifact_prefix=.build/fuzz/$(FUZZ)- $(FUZZ_OPTIONS) .build/fuzz/$(FUZZ) $(FUZZ_SEEDS)

-include $(OBJECTS:.o=.d) $(CUDA_OBJECTS:.o=.d)
