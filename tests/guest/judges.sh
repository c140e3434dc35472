# What Linux's own perf makes of the guest's branch records: recordings of
# /work/graph (tests/guest/judge.py) for scripts/judges, which judges them
# outside. Nothing of lbr runs here.
dmesg | sed -n 's/^\[[^]]*\] //; /Performance Events\|LBR/p' >/out/dmesg
{ uname -r; perf --version; } >/out/versions
# What the kernel complains of. A busy host can make a CPU look stuck.
trap "dmesg | grep -E 'unchecked MSR|WARNING: CPU|BUG: |Oops' | grep -v 'soft lockup' >/out/log" EXIT

# NAME: whether it is among those that are asked for, all of them without ONLY.
wanted() {
  case " ${ONLY:-$1} " in
    *" $1 "*) ;;
    *) return 1 ;;
  esac
}

# NAME FILTER PERF'S-OPTIONS... -- COMMAND...
record() {
  name=$1 filter=$2
  shift 2
  wanted "$name" || return 0
  # What nobody looks at here takes seconds of an emulated CPU.
  timeout 200 perf record -q -B -N --no-bpf-event -o "/out/$name.data" "$@" >"/out/$name.said" 2>&1
  echo "$filter $?" >"/out/$name.status"
}

case $CPU in
  06_0F | 06_17 | 06_1C) filters="any" ;;
  *) filters="any any_call any_ret ind_call ind_jmp cond call
     any_call,any_ret ind_call,ind_jmp cond,ind_jmp any_call,cond" ;;
esac
# CPUs whose LBR has a call-stack mode.
case $CPU in
  06_0F | 06_17 | 06_1C | 06_1A | 06_2A | 06_5C | 19_*) stacks= ;;
  *) stacks=yes ;;
esac
for filter in $filters; do
  record "$filter" "$filter,u" -e cycles:u -c 20011 -j "$filter,u" -- /work/graph
done
record kernel any,u,k -e cycles -c 20011 -j any,u,k -- /work/graph
record types any,u -e cycles:u -c 20011 -j any,save_type,u -- /work/graph
# Most samples are of no call. What Linux saves and restores of them is traced, on the clock of perf's samples.
if [ -n "$stacks" ] && wanted call-stack; then
  trace=/sys/kernel/tracing
  mount -t tracefs tracefs $trace
  echo perf >$trace/trace_clock
  echo 8192 >$trace/buffer_size_kb
  for event in msr/read_msr msr/write_msr; do
    echo 'msr >= 0x1500 && msr < 0x1700 || msr == 0x14cf' >$trace/events/$event/filter
    echo 1 >$trace/events/$event/enable
  done
  echo 'prev_comm == "long"' >$trace/events/sched/sched_switch/filter
  echo 1 >$trace/events/sched/sched_switch/enable
  record call-stack stack,u -e cycles:u -c 100003 --call-graph lbr -- /work/long
  echo 0 >$trace/tracing_on
  cat $trace/trace >/out/call-stack.trace
fi
if [ "$filters" != any ]; then
  # The other ring's branches would take the place of those that are asked for.
  record kernel-of-program any,k -e cycles:u -c 20011 -j any,k -- /work/graph
  record program-of-kernel any,u -e cycles:k -c 5003 -j any,u -- /work/graph
  # Another CPU with another filter. Linux writes the register where a task with an event is switched to: whoever is
  # switched to last, again and again.
  if wanted beside; then
    record beside any,u -e cycles:u -c 100003 -j any,u -- taskset 1 /work/long &
    until [ -e /out/beside.status ]; do
      taskset 2 perf record -q -o /tmp/other -e cycles:u -c 20011 -j cond,u -- /work/graph >/dev/null 2>&1
    done
    wait
  fi
fi
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
