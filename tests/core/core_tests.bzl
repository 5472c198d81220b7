"""One test for each *_test.cc of a folder."""

def core_tests(deps, name = "tests"):
    """Declares the tests of the calling folder, and a suite of them.

    Args:
      deps: the libraries they use, besides googletest.
      name: of the suite.
    """
    sources = native.glob(["**/*_test.cc"])
    support = native.glob(["**/*.h", "**/*.cc"], exclude = ["**/*_test.cc"])
    data = native.glob(["**/*.txt"])
    if support:
        native.cc_library(
            name = "support",
            testonly = True,
            srcs = support,
            deps = deps + ["@googletest//:gtest_main"],
        )
    for source in sources:
        native.cc_test(
            name = source[:-len(".cc")],
            srcs = [source],
            data = data,
            deps = deps + ["@googletest//:gtest_main"] + ([":support"] if support else []),
        )
    native.test_suite(
        name = name,
        tests = [":" + source[:-len(".cc")] for source in sources] or ["//tests/core:none"],
    )
