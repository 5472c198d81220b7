"""One test for each *_test.cc and *_fuzz.cc of a folder."""

def core_tests(deps, name = "tests", main = ["@googletest//:gtest_main"]):
    """Declares the tests of the calling folder, and a suite of them.

    Args:
      deps: the libraries they use, besides googletest.
      name: of the suite.
      main: the library with their main function; none if the folder has one.
    """
    sources = native.glob(["**/*_test.cc", "**/*_fuzz.cc"])
    support = native.glob(["**/*.h", "**/*.cc"], exclude = sources)
    data = native.glob(["**/*.txt"])
    if support:
        native.cc_library(
            name = "support",
            testonly = True,
            srcs = support,
            deps = deps + main,
        )
    for source in sources:
        native.cc_test(
            name = source[:-len(".cc")],
            srcs = [source],
            data = data,
            deps = deps + main + ([":support"] if support else []),
        )
    native.test_suite(
        name = name,
        tests = [":" + source[:-len(".cc")] for source in sources] or ["//tests/core:none"],
    )
