#!/usr/bin/env bash
# Builds the core for 64-bit Arm and runs its tests in qemu's user mode: test_aarch64.sh [CTEST
# ARGUMENT...]. As root, on Debian 12 or what has its debootstrap; the machine's own packages and
# settings stay as they are, save for debootstrap itself, which must be there. An argument -E takes
# the place of the list of what is left out.
#
#   UNISONO_AARCH64_DIR  where the Debian lies that it builds in (default: /var/tmp/unisono-aarch64,
#                        1.5 GB; remove it at will)
#   UNISONO_MIRROR       where packages come from (default: where this machine's apt takes its own)
#   JOBS                 how many commands at once
#
# qemu's user mode runs the ranks on this machine's kernel and its own memory model: it shows what
# does not compile, wrong assumptions about sizes, signs and instructions, but not about the order of
# memory accesses. That takes a machine.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly root=${UNISONO_AARCH64_DIR:-/var/tmp/unisono-aarch64}
readonly mirror=${UNISONO_MIRROR:-$(
  apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Component: main' | head -n 1
)}
readonly jobs=${JOBS:-$(nproc)}
readonly packages=(
  ca-certificates ccache cmake g++-aarch64-linux-gnu git iproute2 libcli11-dev nlohmann-json3-dev ninja-build pkg-config
  python3 qemu-user libfmt-dev:arm64 libgmock-dev:arm64 libgtest-dev:arm64 libhwy-dev:arm64
  libjpeg62-turbo-dev:arm64 libpng-dev:arm64 libsndfile1-dev:arm64 libssl-dev:arm64 zlib1g-dev:arm64)

# What qemu can't run: a pattern of names, and why.
readonly left_out=(
  'launch_e2e_test\.|examples\.|cli\.(bench|doctor)$|Ipv6Loopback\.(TheLauncher|RanksOfSeveral)|residue_test\.Killed\.AJobLeavesNothingBehind'
  "qemu has no prctl(PR_SET_CHILD_SUBREAPER), without which \`unisono run\` starts nothing"
  'Messages\.OfASenderThatDoesNotWaitAreReadWithoutItsHelp'
  "qemu has no process_vm_readv, so that a rank can't read another's memory"
  'AnswerWatch\.SeesThatNobodyAnswers|WatchingProcesses\.AreToldOfTheir'
  "qemu passes on but four bytes of TCP_INFO"
  'UnixSocket\.SeveralDescriptorsAtOnceAreRefused'
  "qemu makes more room for descriptors than was asked for"
  'SeveralNodes/Absent\.ATimeoutNamesTheRank'
  "ranks start further apart in qemu than the test allows their timeouts to be"
  'AllReduce\.OfEachSizeAddsUp/8 ranks'
  "8 ranks in qemu are late enough to complain of each other, where the test wants silence"
  'Multicast\.(EveryMember|WhereNoInterface)|MulticastMethod\.(WhoIsAlone|ProcessesThat)|MulticastAlone|MulticastOfNodes|AtAMulticastGroup|InitMethods\..*(AMulticastGroup|WhatIsMissing)'
  "qemu has no IP_MULTICAST_ALL, without which a socket joins no group"
  'TcpStoreServer\.PlainClientsOfAnotherUserAreDropped|SecretFile\.OneOfRootsMayBeReadByAGroup'
  "the tests' user namespace knows no user but root"
  'CrashReport\.|Ways/Crash\.'
  "qemu has no clone() of a process that ends without a signal, by which names are looked up"
  'attacks\.requests|Idle\.ARankHasLittleInMemory'
  "they measure memory: qemu's own counts, and in qemu the C library can't give the heap's end back")

say() { printf 'aarch64: %s\n' "$*" >&2; }

die() {
  say "$@"
  exit 1
}

# Debian with the cross compiler, and the libraries in their Arm build beside it.
make_root() {
  local stamp=$root/packages
  [[ $(cat "$stamp" 2>/dev/null) != "${packages[*]}" ]] || return 0
  if [[ ! -e $root/etc/debian_version ]]; then
    command -v debootstrap >/dev/null || die "there is no debootstrap: apt-get install debootstrap"
    [[ -n $mirror ]] || die "apt has no Debian 12 here: say where one is in UNISONO_MIRROR"
    say "installing Debian 12 into $root"
    debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
      die "debootstrap failed: see $root.log"
  fi
  say "installing ${packages[*]}"
  {
    chroot "$root" dpkg --add-architecture arm64
    chroot "$root" apt-get -q update
    chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
      "${packages[@]}"
  } >>"$root.log" 2>&1 </dev/null || die "installing packages failed: see $root.log"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
  printf '%s' "${packages[*]}" >"$stamp"
}

# What follows runs in a mount namespace of its own.
mount_all() {
  mkdir -p "$root/src" "$root/ccache"
  # Tests of network namespaces want a / that is a mount point.
  mount --bind "$root" "$root"
  mount --bind . "$root/src"
  mount --rbind /dev "$root/dev"
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/tmp"
}

build() {
  chroot "$root" env -C /src -i PATH="$PATH" LC_ALL=C.UTF-8 CCACHE_DIR=/ccache \
    bash -ec "cmake --preset aarch64; cmake --build --preset aarch64 --parallel $jobs"
}

# The kernel starts Arm programs by qemu, in this user namespace alone; tests start many.
register_qemu() {
  local registry=/proc/sys/fs/binfmt_misc elf mask
  elf='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  mount -t proc proc /proc
  mount -t binfmt_misc binfmt_misc $registry ||
    die "this kernel has no binfmt_misc for a user namespace (Linux 6.7 has)"
  printf '%s' ":qemu-aarch64:M::$elf:$mask:/usr/bin/qemu-aarch64:F" >$registry/register
}

# leave_out REASON CTEST ARGUMENT...: prints the tests that ctest finds. Where there are none, the
# list of what is left out no longer fits the tests.
leave_out() {
  local names
  names=$(ctest --preset aarch64 -N "${@:2}" | sed -n 's/^ *Test *#[0-9]*: /  /p')
  [[ -n $names ]] || die "no test is left out by ${*:2}: mend the list of what qemu can't run"
  say "left out, since $1:"
  printf '%s\n' "$names" >&2
}

run_tests() {
  local i excluded= status=0
  register_qemu
  ip link set lo up
  cd /src
  for ((i = 0; i < ${#left_out[@]}; i += 2)); do
    leave_out "${left_out[i + 1]}" -R "${left_out[i]}"
    excluded+=${excluded:+|}${left_out[i]}
  done
  leave_out "they take long (label slow)" -L slow -E "$excluded"
  # One after the other: where several ranks share a core in qemu, they complain of each other.
  ctest --preset aarch64 -LE slow -E "$excluded" "$@" || status=$?
  ((status == 0)) || die "FAILED: ctest names the tests above"
  say "all passed; what was left out is named at the start"
}

case ${1:-} in
  --build)
    mount_all
    build
    ;;
  --test)
    mount_all
    exec unshare --user --map-root-user --mount --pid --net --fork \
      chroot "$root" env -i PATH="$PATH" LC_ALL=C.UTF-8 /src/tools/test_aarch64.sh --inside "${@:2}"
    ;;
  --inside) run_tests "${@:2}" ;;
  *)
    ((EUID == 0)) || die "needs root, for its own Debian in $root"
    make_root
    unshare --mount "$0" --build
    unshare --mount "$0" --test "$@"
    ;;
esac
