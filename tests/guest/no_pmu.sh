# No performance counters, as under most hypervisors: the kernel has nothing to
# take branch stacks from. Run with --no-pmu.
. /work/lib.sh

echo 'tester:x:1000:1000::/:/bin/sh' >/etc/passwd
[ -e /bin/sh ] || ln -s busybox /bin/sh
none='the kernel found no performance counters of this CPU'
expect 3 "--backend perf: $none: QEMU hides them" lbr record --backend perf -o /tmp/perf.data -- true
[ ! -e /tmp/perf.data ] || fail "a refused recording left a file"
lbr doctor -v | grep -q "^bad  *perf .*$none" || fail "doctor: $(lbr doctor)"
lbr doctor -v | grep -q '^ok  *backends  *msr, soft$' || fail "doctor: $(lbr doctor)"
# Left to itself it says why of each, and records all the same.
expect 0 "as perf events: $none" su -s /bin/sh tester -c 'lbr record -v -o /tmp/soft.data -- true'
grep -q 'recording on the software LBR' /tmp/stderr || fail "no software LBR: $(cat /tmp/stderr)"
expect 3 'no performance counters' lbr time --backend perf --hex 90
finish
