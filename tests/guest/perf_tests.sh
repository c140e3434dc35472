# perf's own tests of branch stacks, for scripts/judges.
{ uname -r; perf --version; } >/out/versions
# That of 6.1 compiles its program: scripts/judges has done so.
cat >/bin/cc <<'SH'
#!/bin/sh
while [ "$1" != -o ]; do shift; done
cp /work/brstack "$2"
SH
# That of later ones is a part of perf, of which Debian strips the names that the test looks for.
# perf looks for programs beside itself first.
mv /perf/perf /perf/debians
cat >/perf/perf <<'SH'
#!/bin/sh
case "$*" in
  "test -vv -F Symbols") echo " brstack_bench" ;;
  "test -w brstack") exec /work/brstack ;;
  *) exec /perf/loader --library-path /perf /perf/debians "$@" ;;
esac
SH
cp /perf/perf /bin/perf
# busybox wants six of them.
rm /bin/mktemp
cat >/bin/mktemp <<'SH'
#!/bin/sh
exec busybox mktemp "$@"X
SH
chmod +x /bin/cc /bin/perf /bin/mktemp
# Their default of 4,000 samples a second is more than an emulated CPU gets done: each interrupt takes a
# millisecond or more. perf lowers its default to what the kernel allows (Documentation/admin-guide/sysctl/kernel.rst).
echo 250 >/proc/sys/kernel/perf_event_max_sample_rate
for test in /perf/tests/*.sh; do
  timeout 2400 bash "$test" >"/out/$(basename "$test" .sh).said" 2>&1
  echo $? >"/out/$(basename "$test" .sh).status"
done
