#!/usr/bin/env bash
# apiserver.sh STATE_DIR stop|start|pause|resume: takes the cluster's API server away and brings it back (../service.sh).
exec "$(dirname "$0")/../service.sh" "$1" apiserver "$2"
