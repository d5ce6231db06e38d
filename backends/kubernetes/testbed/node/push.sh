#!/usr/bin/env bash
# push.sh STATE_DIR NAME:TAG PROGRAM [OPTION...]: puts an image of one program (app-v1, app-v2, app-v3, crash, dies) into the bed's
# registry, and prints REGISTRY/NAME:TAG@DIGEST. A tag that exists already moves. The program does not run as root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); . "$1/env"
python3 "$here/../../builder-image/mkimage.py" "$REGISTRY/$2" "$PROGRAMS/$3" --user 65532 --push "${@:4}"
