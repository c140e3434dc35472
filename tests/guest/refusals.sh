# What stands in the way of the registers, each for real, on a Skylake.
. /work/lib.sh

module=$(find / -xdev -name 'msr.ko' | head -n1)
echo 'tester:x:1000:1000::/:/bin/sh' >/etc/passwd
[ -e /bin/sh ] || ln -s busybox /bin/sh
user() { su -s /bin/sh tester -c "$*"; }

# File mode, then the capability that root does not need to think of.
expect 4 'mode 0600' user lbr dump -C 1
expect 4 'mode 0600' user lbr dump -C 1 --arm any,u
chmod 666 /dev/cpu/1/msr
expect 4 'CAP_SYS_RAWIO' user lbr dump -C 1
expect 4 'CAP_SYS_RAWIO' user lbr dump -C 1 --arm any,u
chmod 600 /dev/cpu/1/msr

# Writing is forbidden, reading is not.
echo off >/sys/module/msr/parameters/allow_writes
expect 4 'echo on > /sys/module/msr/parameters/allow_writes' lbr dump -C 1 --arm any,u
lbr dump -C 1 >/dev/null || fail "dump with allow_writes=off: status $?"
[ "$(($(cat /proc/sys/kernel/tainted) & 4))" = 0 ] || fail "a refused write taints"
echo on >/sys/module/msr/parameters/allow_writes

# The taint is said before the first write, and only then.
expect 0 'CPU_OUT_OF_SPEC' lbr dump -C 1 --arm any,u
[ "$(($(cat /proc/sys/kernel/tainted) & 4))" = 4 ] || fail "a write does not taint"
lbr dump -C 1 --arm any,u 2>/tmp/stderr >/dev/null
grep -q CPU_OUT_OF_SPEC /tmp/stderr && fail "the taint is announced twice"

# The kernel's perf events, by its level for ordinary users: Debian's and Ubuntu's.
for level in 3 4; do
  echo $level >/proc/sys/kernel/perf_event_paranoid
  expect 4 "kernel.perf_event_paranoid is $level, which forbids all perf events" \
    user lbr record --backend perf -o /tmp/user.data -- /work/loop
done
echo 2 >/proc/sys/kernel/perf_event_paranoid
expect 4 'samples per second exceed the limit of this kernel' \
  user lbr record --backend perf -F 1000000 -o /tmp/user.data -- /work/loop
expect 4 'or a process of another user' user lbr record --backend perf -p 1 --for 100 -o /tmp/user.data
expect 2 'no process 99999 is running' user lbr record --backend perf -p 99999 -o /tmp/user.data
[ ! -e /tmp/user.data ] || fail "a refused recording left a file"

# A register that does not exist: the CPUID of a Core 2, whose FROM registers
# start at 0x40, on this Skylake.
cat >/tmp/core2 <<'CPUID'
CPU:
0x00000000 0x00: eax=0x00000006 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
0x00000001 0x00: eax=0x000006f6 ebx=0x00000000 ecx=0x00008000 edx=0x00000020
CPUID
# Any of its four may be the newest.
expect 3 '#GP on read of 0x4' lbr dump -C 1 --cpuid /tmp/core2 --perf-capabilities 2

# CPUs that are not there.
expect 2 'online: 0-1' lbr dump -C 7
expect 2 'CPU 7 does not exist' lbr dump -C 7 --cpuid /tmp/core2
lbr dump -C 1 --arm any,u --for 60000 -- /work/loop >/dev/null 2>/tmp/stderr &
pid=$!
within 30 recording_is 1 true || fail "not armed: $(cat /tmp/stderr)"
echo 0 >/sys/devices/system/cpu/cpu1/online || fail "CPU 1 cannot be taken offline"
# It looks when its program has ended.
killall loop
wait "$pid"
status=$?
[ "$status" -eq 3 ] || fail "offline while armed: status $status: $(cat /tmp/stderr)"
grep -q 'CPU 1 is offline' /tmp/stderr || fail "offline while armed: $(cat /tmp/stderr)"
expect 3 'CPU 1 is offline; bring it online' lbr dump -C 1
expect 3 'CPU 1 is offline' lbr disarm -C 1
# A node that nobody took away: ENXIO.
mkdir -p /tmp/root/dev/cpu/1 /tmp/root/sys/devices/system/cpu/cpu1
mknod /tmp/root/dev/cpu/1/msr c 202 1
expect 3 'CPU 1 is offline' lbr dump -C 1 --cpuid /tmp/core2 --msr-root /tmp/root
echo 1 >/sys/devices/system/cpu/cpu1/online
within 30 test -e /dev/cpu/1/msr || fail "no node after CPU 1 came back"
lbr disarm >/dev/null || fail "disarm after CPU 1 came back: status $?"

# No driver.
rmmod msr
expect 3 'modprobe msr' lbr dump -C 1
expect 3 'modprobe msr' lbr dump -C 1 --arm any,u
expect 3 'modprobe msr' lbr disarm -C 1
insmod "$module"
lbr dump -C 1 >/dev/null || fail "dump with the driver back: status $?"
finish
