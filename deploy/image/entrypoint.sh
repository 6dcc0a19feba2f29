#!/bin/sh
# Gives the demo to a folder that holds nothing, then becomes the command. What is mounted with something in it stays as
# it is. Several containers may start on one empty volume: one of them fills it while the others wait.
set -eu

demo=${OPENBOOK_DEMO:-/opt/openbook/demo}

# what anybody put there; a new file system's own folder, and what is hidden, is nobody's
held() {
  find "$1" -mindepth 1 -maxdepth 1 ! -name '.*' ! -name lost+found | head -n 1
}

fill() (
  from=$1 to=$2
  [ -d "$from" ] && [ -d "$to" ] || return 0
  exec 9<"$to"
  # a file system that locks no folder leaves two that start at once to the names below, none of which is taken twice
  flock 9 2>/dev/null || :
  # a start that was killed while it filled the folder left .filling behind: go on with what is missing
  [ -e "$to/.filling" ] || [ -z "$(held "$to")" ] || return 0
  rm -rf "$to/.filling"
  cp -R "$from" "$to/.filling" || {
    rm -rf "$to/.filling"
    echo "openbook: $to is empty and user $(id -u) cannot write to it: give it the folder, or mount one that holds something" >&2
    return 1
  }
  # versions first, and then CURRENT, which names one of them
  for one in "$to"/.filling/*/ "$to"/.filling/*; do
    one=${one%/}
    [ ! -e "$one" ] || mv -nT "$one" "$to/${one##*/}"
  done
  rm -rf "$to/.filling"
)

fill "$demo/indexes" "${OPENBOOK_INDEXES:-/indexes}"
fill "$demo/checkpoints" "${OPENBOOK_CHECKPOINTS:-/checkpoints}"
exec "$@"
