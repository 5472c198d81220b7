# Builds and tests the C++ core, which needs no TensorFlow: everything under ops/ but kernels/.
#
#   make -f ops/core.mk test LIBUCX=<folder with include/ and lib/> [GTEST=<prefix>] [CORE_BUILD=.build/core] [SANITIZE=address,undefined]
#
# Every tests/core/**/*_test.cc becomes a program of its own, every .cc of ops/tools/ and ops/bench/ a program in $(CORE_BUILD)/bin; what else lies
# in tests/core/ is linked to all tests. FILTER=<part of a path> runs only the tests that carry it.
CORE_BUILD ?= .build/core
SANITIZE ?=
FILTER ?=
TEST_SECONDS ?= 600
CXX ?= g++
OPTIMIZE ?= -O2 -g
WERROR ?= -Werror
ifndef GTEST
GTEST := $(shell tools/find_googletest.sh)
endif
$(if $(GTEST),,$(error googletest is missing))
$(if $(wildcard $(LIBUCX)/include/ucp/api/ucp.h),,$(error LIBUCX=$(LIBUCX) has no include/ucp/api/ucp.h: name the folder of the package libucx))

LAYERS := base schedule reduce compress transport communicator channel ledger
find_sources = $(shell find $(1) -name '*.cc' 2>/dev/null | LC_ALL=C sort)
CORE_SOURCES := $(foreach layer,$(LAYERS),$(call find_sources,ops/$(layer)))
TOOL_SOURCES := $(call find_sources,ops/tools ops/bench)
TEST_SOURCES := $(filter %_test.cc,$(call find_sources,tests/core))
SUPPORT_SOURCES := $(filter-out %_test.cc,$(call find_sources,tests/core))

object = $(patsubst %.cc,$(CORE_BUILD)/%.o,$(1))
OBJECTS := $(call object,$(CORE_SOURCES) $(TOOL_SOURCES) $(TEST_SOURCES) $(SUPPORT_SOURCES))
TOOLS := $(addprefix $(CORE_BUILD)/bin/,$(basename $(notdir $(TOOL_SOURCES))))
TESTS := $(patsubst %.cc,$(CORE_BUILD)/%,$(TEST_SOURCES))
SELECTED := $(if $(FILTER),$(foreach test,$(TESTS),$(if $(findstring $(FILTER),$(test)),$(test))),$(TESTS))

CPPFLAGS += -I. -isystem $(LIBUCX)/include $(if $(filter /usr,$(GTEST)),,-isystem $(GTEST)/include)
CXXFLAGS += -std=c++17 $(OPTIMIZE) -fPIC -pthread -Wall -Wextra $(WERROR) $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer)
LDFLAGS += -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE))
UCX_LIBS := -L$(LIBUCX)/lib -lucp -lucs -Wl,-rpath,$(LIBUCX)/lib
GTEST_LIBS := $(firstword $(wildcard $(GTEST)/lib/*/libgtest_main.a $(GTEST)/lib/libgtest_main.a)) \
              $(firstword $(wildcard $(GTEST)/lib/*/libgtest.a $(GTEST)/lib/libgtest.a))

.PHONY: all test tools
.DELETE_ON_ERROR:
.SECONDARY: $(OBJECTS)

all: tools $(TESTS)
tools: $(TOOLS)

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

define link_tool
	@mkdir -p $(@D)
	@echo "  LD   $@"
	@$(CXX) $(LDFLAGS) $^ $(UCX_LIBS) -o $@
endef

$(CORE_BUILD)/bin/%: $(CORE_BUILD)/ops/tools/%.o $(CORE_BUILD)/libcore.a
	$(link_tool)

$(CORE_BUILD)/bin/%: $(CORE_BUILD)/ops/bench/%.o $(CORE_BUILD)/libcore.a
	$(link_tool)

test: tools $(SELECTED)
	@tools/run_core_tests.sh $(TEST_SECONDS) $(SELECTED)

-include $(OBJECTS:.o=.d)
