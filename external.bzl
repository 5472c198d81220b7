"""Libraries that are installed on the machine, as Bazel repositories: nothing is downloaded."""

_GOOGLETEST_BUILD = """
cc_library(
    name = "gtest_main",
    srcs = {archives},
    hdrs = glob(["include/gtest/**"]),
    {includes}
    linkopts = ["-pthread"],
    visibility = ["//visibility:public"],
)
"""

_UCX_BUILD = """
cc_library(
    name = "ucx",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    linkopts = ["-L{libucx}/lib", "-lucp", "-lucs", "-Wl,-rpath,{libucx}/lib"],
    visibility = ["//visibility:public"],
)
"""

def _required(repository_ctx, variable, meaning):
    value = repository_ctx.os.environ.get(variable, "")
    if not value:
        fail("%s is not set: %s. Run tools/bazel.sh, which sets it." % (variable, meaning))
    return value

def _googletest(repository_ctx):
    prefix = _required(repository_ctx, "GTEST_PREFIX", "the folder above googletest's include/ and lib/")
    found = []
    for name in ["libgtest_main.a", "libgtest.a"]:
        for folder in [repository_ctx.path(prefix + "/lib")] + repository_ctx.path(prefix + "/lib").readdir():
            archive = repository_ctx.path(str(folder) + "/" + name)
            if archive.exists:
                repository_ctx.symlink(archive, "lib/" + name)
                found.append("lib/" + name)
                break
    if len(found) != 2:
        fail("%s has no libgtest.a and libgtest_main.a" % prefix)
    repository_ctx.symlink(prefix + "/include/gtest", "include/gtest")

    # A compiler that is told of /usr/include again loses its own order of folders.
    includes = "" if prefix == "/usr" else "includes = [\"include\"],"
    repository_ctx.file("BUILD", _GOOGLETEST_BUILD.format(archives = repr(found), includes = includes))

def _ucx(repository_ctx):
    libucx = _required(repository_ctx, "LIBUCX", "the folder of the Python package libucx")
    repository_ctx.symlink(libucx + "/include", "include")
    repository_ctx.file("BUILD", _UCX_BUILD.format(libucx = libucx))

installed_googletest = repository_rule(implementation = _googletest, environ = ["GTEST_PREFIX"], local = True)
installed_ucx = repository_rule(implementation = _ucx, environ = ["LIBUCX"], local = True)
