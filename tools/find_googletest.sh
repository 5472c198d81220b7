#!/usr/bin/env bash
# Prints the prefix of googletest (include/ and lib/ below it): the system's, or one brought into .build/googletest.
# GTEST_PREFIX names another.
set -euo pipefail
cd "$(dirname "$0")/.."
here=.build/googletest

complete() {
  [ -f "$1/include/gtest/gtest.h" ] && { [ -f "$1/lib/libgtest.a" ] || compgen -G "$1/lib/*/libgtest.a" >/dev/null; }
}

install_system_wide() {
  local become=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || return 1
    become=(sudo -n)
  fi
  "${become[@]}" apt-get install -y -qq libgtest-dev ||
    { "${become[@]}" apt-get update -qq && "${become[@]}" apt-get install -y -qq libgtest-dev; }
}

unpack_here() {
  mkdir -p "$here"
  (cd "$here" && apt-get download -qq libgtest-dev && dpkg -x libgtest-dev_*.deb .)
  mv "$here/usr/"* "$here/"
}

for prefix in ${GTEST_PREFIX:-} /usr /usr/local "$PWD/$here"; do
  if complete "$prefix"; then
    echo "$prefix"
    exit
  fi
done
mkdir -p .build/log
log=.build/log/googletest.log
if command -v apt-get >/dev/null; then
  if install_system_wide >"$log" 2>&1 && complete /usr; then
    echo /usr
    exit
  fi
  if unpack_here >>"$log" 2>&1 && complete "$PWD/$here"; then
    echo "$PWD/$here"
    exit
  fi
  tail -n 5 "$log" >&2
fi
echo "googletest, which the tests of the C++ core need, is not here and could not be installed: install the package" \
  "libgtest-dev, or set GTEST_PREFIX to a folder with include/gtest/ and lib/libgtest.a" >&2
exit 1
