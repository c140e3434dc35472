# What Linux's own perf makes of the guest's branch records: recordings of
# /work/graph (tests/guest/judge.py) for scripts/judges, which judges them
# outside. Nothing of lbr runs here.
dmesg | sed -n 's/^\[[^]]*\] //; /Performance Events\|LBR/p' >/out/dmesg
{ uname -r; perf --version; } >/out/versions

[ -z "$BOOT" ] || exit 0

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
graph=/work/graph
# CPUs whose LBR has a call-stack mode.
case $CPU in
  06_0F | 06_17 | 06_1C | 06_1A | 06_2A | 06_5C | 19_*) stacks= ;;
  *) stacks=yes ;;
esac
some() {
  for filter in $filters; do
    record "$filter" "$filter,u" -e cycles:u -c 20011 -j "$filter,u" -- "$graph"
  done
  record kernel any,u,k -e cycles -c 20011 -j any,u,k -- "$graph"
  record types any,u -e cycles:u -c 20011 -j any,save_type,u -- "$graph"
  # Most samples are of no call.
  [ -z "$stacks" ] || record call-stack stack,u -e cycles:u -c 100003 --call-graph lbr -- /work/long
}
if [ -n "$LIES" ]; then
  # What shows most of them. How a lie is switched on: lbr_msr::soft::machine.
  filters="any any_ret cond call ind_jmp" graph=/work/short
  for lie in $LIES; do
    printf %s "$lie" | dd of=/dev/cpu/0/msr bs=512 conv=sync,notrunc oflag=seek_bytes \
      seek=$((0x4C425201)) 2>/dev/null
    mkdir "/out/$lie"
    some
    mv /out/*.data /out/*.status /out/*.said "/out/$lie"
  done
  exit 0
fi
some
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
# Records are fewer where there is no filter.
[ "$filters" = any ] && period=149 || period=499
record long any,u -e branches:u -c $period -j any,u -- /work/long
