# perf's own tests of branch stacks, for scripts/judges.
{ uname -r; perf --version; } >/out/versions
# The first of them compiles its program: scripts/judges has done so.
cat >/bin/cc <<'SH'
#!/bin/sh
while [ "$1" != -o ]; do shift; done
cp /work/brstack "$2"
SH
chmod +x /bin/cc
for test in /perf/tests/*.sh; do
  timeout 900 bash "$test" >"/out/$(basename "$test" .sh).said" 2>&1
  echo $? >"/out/$(basename "$test" .sh).status"
done
