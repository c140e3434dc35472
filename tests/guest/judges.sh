# What Linux's own perf makes of the guest's branch records: recordings of
# /work/graph (tests/guest/judge.py) for scripts/judges, which judges them
# outside. Nothing of lbr runs here.
dmesg | sed -n 's/^\[[^]]*\] //; /Performance Events\|LBR/p' >/out/dmesg
{ uname -r; perf --version; } >/out/versions

# NAME FILTER PERF'S-OPTIONS... -- COMMAND...
record() {
  name=$1 filter=$2
  shift 2
  perf record -q -o "/out/$name.data" "$@" >"/out/$name.said" 2>&1
  echo "$filter $?" >"/out/$name.status"
}

case $CPU in
  06_0F | 06_17 | 06_1C) filters="any" ;;
  *) filters="any any_call any_ret ind_call ind_jmp cond call
     any_call,any_ret ind_call,ind_jmp cond,ind_jmp any_call,cond" ;;
esac
# For a lie: what shows most of them.
[ -z "$FEW" ] || filters="any any_ret cond call ind_jmp"
for filter in $filters; do
  record "$filter" "$filter,u" -e cycles:u -c 20011 -j "$filter,u" -- /work/graph
done
record kernel any,u,k -e cycles -c 20011 -j any,u,k -- /work/graph
[ -z "$FEW" ] || exit 0
record instructions any,u -e instructions:u -c 20011 -j any,u -- /work/graph
record branches any,u -e branches:u -c 5003 -j any,u -- /work/graph
record per-thread any,u -e cycles:u -c 20011 -j any,u --per-thread -- /work/graph
record system any,u -a -e cycles:u -c 20011 -j any,u -- /work/graph
cat >/tmp/migrate <<'SH'
/work/graph &
pid=$!
while taskset -p 1 $pid && usleep 3000 && taskset -p 2 $pid && usleep 3000; do :; done >/dev/null 2>&1
wait $pid
SH
record migrating any,u -e cycles:u -c 20011 -j any,u -- sh /tmp/migrate
[ -n "$LONG" ] || exit 0
# Linux would lower its rate, as each of the emulated registers takes so long.
# The rate first: it cannot be set any more afterwards.
echo 100000 >/proc/sys/kernel/perf_event_max_sample_rate
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
record long any,u -e branches:u -c 499 -j any,u -- /work/long
