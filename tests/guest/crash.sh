# `lbr crash` with the registers of a CPU: the branches that led to a jump to 0. CPU is the model,
# AROUND to LAST are labels of /work/dies.
. /work/lib.sh

control_before=$(header 1 control)
depth=$(lbr probe --json | sed -n 's/.*"depth":\([0-9]*\).*/\1/p' | head -n1)
lbr crash -C 1 --backend msr --json -o /tmp/crash.data /work/dies >/tmp/out 2>/tmp/stderr
[ $? = 139 ] || fail "status $?: $(cat /tmp/stderr)"
branches=$(grep -c '"kind":"branch"' /tmp/out)
[ "$branches" = "$depth" ] || fail "$branches of $depth branches: $(cat /tmp/out /tmp/stderr)"
grep '"kind":"branch"' /tmp/out | sed 's/.*"from":"\([^"]*\)".*"to":"\([^"]*\)".*/\1 \2/' >/tmp/path
{
  n=2
  while [ $n -lt "$depth" ]; do
    echo "$BACK $AROUND"
    n=$((n + 1))
  done
  echo "$OUTER $THROUGH"
  echo "$LAST 0x0"
} >/tmp/expected
diff /tmp/expected /tmp/path >/tmp/difference || fail "$(cat /tmp/difference) $(head -n3 /tmp/out)"
tail -n1 /tmp/out | grep -q '"deadly":true' || fail "no death: $(tail -n1 /tmp/out)"
lbr crash -C 1 --backend msr /work/dies >/tmp/out 2>/tmp/stderr
head -n1 /tmp/out | grep -q 'SIGSEGV at 0x0' || fail "text: $(cat /tmp/out /tmp/stderr)"
lbr script -i /tmp/crash.data >/tmp/text 2>&1 || fail "the recording: $(cat /tmp/text)"
[ "$(grep -o "/0x0/" /tmp/text | wc -l)" -eq 1 ] || fail "the recording: $(cat /tmp/text)"
lbr crash -C 1 --backend msr -- sh -c 'exit 0' >/tmp/none || fail "no crash: status $?"
grep -q 'no crash: sh exited with status 0' /tmp/none || fail "no crash: $(cat /tmp/none)"
lbr crash -C 1 --backend msr --at exit -- sh -c 'exit 0' | grep -q 'exit by thread' || fail "no exit"

# The status and the last branch of each death as the single-stepper finds them. They are the same on
# every CPU: /work/deaths are those of an earlier run.
echo 0 >/proc/sys/kernel/randomize_va_space
last() {
  grep '"kind":"branch"' "$1" | tail -n1 | sed 's/"from":"\([^"]*\)".*"to":"\([^"]*\)".*"type":"\([^"]*\)".*/\1 \2 \3/; s/^.//'
}
# CPUS DEATH...
step() {
  cpus=$1
  shift
  for way; do
    taskset $cpus lbr crash --source ptrace --children --json /work/crashes $way >/tmp/stepped-$way 2>/tmp/stderr-$way
    echo "$way $? $(last /tmp/stepped-$way)" >>/tmp/deaths-$cpus
    cat /tmp/stderr-$way
  done
}
if [ ! -e /work/deaths ]; then
  # On both CPUs, before the registers of one are in use.
  step 1 null dangling stack overflow handler >/tmp/stepping &
  step 2 overrun abort divide ud2 code exec
  wait
  cat /tmp/stepping /tmp/deaths-1 /tmp/deaths-2
  cat /tmp/deaths-1 /tmp/deaths-2 >/work/deaths
  cp /work/deaths /out
fi
[ "$(wc -l </work/deaths)" = 11 ] || fail "deaths: $(cat /work/deaths)"
while read -r way status branch; do
  lbr crash -C 1 --backend msr --json /work/crashes $way >/tmp/out 2>/tmp/stderr
  got=$?
  [ $got = $status ] || fail "$way: status $got, not $status: $(cat /tmp/stderr)"
  [ -n "$branch" ] && [ "$(last /tmp/out)" = "$branch" ] ||
    fail "$way: the last branch is $(last /tmp/out), stepped $branch: $(cat /tmp/out /tmp/stderr)"
done </work/deaths
expect 2 'need every branch' lbr crash -C 1 --backend msr --at call:main /work/dies
[ "$(header 1 control)" = "$control_before" ] || fail "control is $(header 1 control)"
recording_is 1 false || fail "recording is on"
finish
