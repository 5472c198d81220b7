#!/usr/bin/env bash
# Brings what the C++ core and its tests need on aarch64 into .build/aarch64: UCX, googletest and OpenSSL. Prints the arguments for
# ops/core.mk, which compiles with a cross compiler and runs the tests in an emulator. Usage: tools/aarch64.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
here=$PWD/.build/aarch64
compiler=aarch64-linux-gnu-g++
emulator=qemu-aarch64-static
source=/usr/src/googletest/googletest
for program in $compiler $emulator apt-get dpkg; do
  if ! command -v $program >/dev/null || [ ! -d $source ]; then
    echo "tests on aarch64 need Debian's packages g++-aarch64-linux-gnu, qemu-user-static and googletest: install them" >&2
    exit 1
  fi
done
mkdir -p "$here/googletest/lib" "$here/log"

ucx() {
  [ -d "$here/ucx/libucx" ] && return
  "$python" -m pip download --no-deps --only-binary :all: --platform manylinux_2_28_aarch64 -d "$here/packages" libucx-cu12
  "$python" -m zipfile -e "$here"/packages/libucx*.whl "$here/ucx"
}

googletest() {
  [ -f "$here/googletest/lib/libgtest_main.a" ] && return
  cp -r $source/include "$here/googletest"
  for name in gtest gtest_main; do
    file=$source/src/${name/gtest/gtest-all}.cc
    [ $name = gtest_main ] && file=$source/src/gtest_main.cc
    $compiler -O2 -std=c++17 -I$source -I$source/include -c "$file" -o "$here/googletest/$name.o"
    ar rcs "$here/googletest/lib/lib$name.a" "$here/googletest/$name.o"
  done
}

# By a state of apt of its own, so that the machine's stays as it is.
openssl() {
  [ -d "$here/root/usr/lib" ] && return
  local state=$here/apt options
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/packages"
  touch "$state/status"
  options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= -o "Dir::State=$state" -o "Dir::Cache=$state/cache"
    -o "Dir::State::status=$state/status")
  apt-get "${options[@]}" update
  (cd "$state/packages" && apt-get "${options[@]}" download libssl3)
  dpkg -x "$state"/packages/libssl3*.deb "$here/root"
}

for part in ucx googletest openssl; do
  if ! $part >"$here/log/$part.log" 2>&1; then
    tail -n 20 "$here/log/$part.log" >&2
    exit 1
  fi
done
echo "CXX=$compiler CORE_BUILD=.build/aarch64/core LIBUCX=$here/ucx/libucx GTEST=$here/googletest NVCC=" \
  "EMULATOR='$emulator -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$here/root/usr/lib/aarch64-linux-gnu'"
