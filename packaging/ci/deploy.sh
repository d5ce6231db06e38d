#!/bin/sh
# Deploys by a rollhook webhook, and waits for the end: 0 means that the deploy was observed to succeed.
# Needs a POSIX shell, curl 7.55 or newer, and awk, date, mktemp, sed, sleep, tail, tr and wc.
#
# Environment:
#   SERVICE_WEBHOOK_URL    the app's webhook
#   SERVICE_WEBHOOK_TOKEN  the webhook's token; without one, an id_token of the pipeline:
#   ROLLHOOK_ID_TOKEN      GitLab's (id_tokens). On GitHub the script asks for one (permissions: id-token: write)
#   ROLLHOOK_AUDIENCE      its audience on GitHub; default: the server's base URL
#   IMAGE                  the image that was pushed; unset for a git app
#   COMMIT                 the commit; default: the job's. Its time is sent too, where the job has the repository
#   DEPLOY_SEQUENCE        the place among the app's deploys: after a higher one, the deploy changes nothing, and the job ends as
#                          that one did. Default: the run's number on GitHub, unless it is run again, and the pipeline's on
#                          GitLab; none: no place
#   DEPLOY_TIMEOUT         seconds to wait for the end; default: the app's own deadlines, and a minute
#   DEPLOY_RETRY           seconds to go on trying while the server gives no answer; default: 120
#   IDEMPOTENCY_KEY        default: made of the run, its attempt and the body
#   TRACEPARENT            the job's span (W3C Trace Context), which the deploy's trace goes on
#   DEPLOY_DOTENV          a file that is given DEPLOY_REVISION, DEPLOY_STATUS and DEPLOY_URL
#
# Exit codes:
#   0  the deploy succeeded
#   1  the server refused the call; the text says why
#   2  a variable is missing or wrong; no call was made
#   3  the deploy ended without success
#   4  not authorised: the token or id_token is wrong, or the webhook is disabled
#   5  the server cannot be reached, or refuses calls for now: nothing was deployed
#   7  the app or its environment is locked
#   8  the deploy has not ended in time, and goes on
#   9  the deploy was accepted, or may have been, and the server does not answer since or refuses: the end is unknown
#
# Token and id_token go to curl by standard input: no process list shows them. The script never prints them, switches
# tracing off (set -x), keeps them from the environment of its children, and ignores ~/.curlrc, which could trace too.
# Proxies and certificates come from curl's variables: https_proxy, CURL_CA_BUNDLE.

{ set +x; } 2> /dev/null
set -u
# A variable that the job exports would stay exported when a secret is assigned to it.
set +a
unset token id_token maker_token proof config
LC_ALL=C
export LC_ALL
umask 077

# shellcheck disable=SC2016 # awk's own
# Prints each string, number and boolean of a JSON text as its path, a tab and its text, in one line that a terminal and
# a CI system's log take for text: control characters and what would reorder it are replaced, and "##", which begins
# commands of some CI systems, is parted. An escape that is no printable ASCII stays an escape.
json='
function fail() { exit 3 }
function take(n) { rest = substr(rest, n + 1) }
function next_char() { if (match(rest, /^[ \t\r\n]+/)) take(RLENGTH); return substr(rest, 1, 1) }
function ascii(hex,   i, code) {
  if (hex !~ /^[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]$/) fail()
  code = 0
  for (i = 1; i <= 4; i++) code = code * 16 + index("0123456789abcdef", tolower(substr(hex, i, 1))) - 1
  return code >= 32 && code < 127 ? sprintf("%c", code) : "\\u" hex
}
function plain(text) {
  gsub(/[\001-\037\177]/, " ", text)
  gsub(/\302[\200-\237]/, "?", text)
  gsub(/\342\200[\213-\217\250-\256]/, "?", text)
  gsub(/\342\201[\240-\257]/, "?", text)
  while (index(text, "##")) sub(/##/, "# #", text)
  return text
}
function string(   out, c) {
  take(1)
  out = ""
  while (1) {
    if (match(rest, /^[^"\\]+/)) { out = out substr(rest, 1, RLENGTH); take(RLENGTH) }
    c = substr(rest, 1, 1)
    if (c == "") fail()
    if (c == "\"") { take(1); return plain(out) }
    c = substr(rest, 2, 1)
    if (c == "u") { out = out ascii(substr(rest, 3, 4)); take(6); continue }
    if (c == "" || !index("\"\\/bfnrt", c)) fail()
    out = out (index("bfnrt", c) ? " " : c)
    take(2)
  }
}
function value(path, depth,   c, i, key) {
  if (depth > 20) fail()
  c = next_char()
  if (c == "\"") { key = string(); print path "\t" key; return }
  if (c == "{" || c == "[") {
    take(1)
    i = 0
    if (next_char() == (c == "{" ? "}" : "]")) { take(1); return }
    while (1) {
      if (c == "{") {
        if (next_char() != "\"") fail()
        key = string()
        gsub(/[^A-Za-z0-9_-]/, "?", key)
        if (next_char() != ":") fail()
        take(1)
        value(path == "" ? key : path "." key, depth + 1)
      } else value(path "[" i++ "]", depth + 1)
      key = next_char()
      take(1)
      if (key == (c == "{" ? "}" : "]")) return
      if (key != ",") fail()
    }
  }
  if (match(rest, /^(true|false)/) || match(rest, /^-?[0-9][-+.0-9eE]*/)) print path "\t" substr(rest, 1, RLENGTH)
  else if (!match(rest, /^null/)) fail()
  take(RLENGTH)
}
{ rest = rest $0 "\n" }
END { value("", 0); if (next_char() != "") fail() }
'

read_json() { # FILE: its members become $work/fields; none if it is no JSON, or too large to be an answer
  : > "$work/fields"
  [ -s "$1" ] && [ "$(wc -c < "$1")" -le 262144 ] || return 0
  tr -d '\000' < "$1" | awk "$json" > "$work/draft" && mv "$work/draft" "$work/fields"
  return 0
}
field() { awk -v path="$1" 'index($0, path "\t") == 1 { print substr($0, length(path) + 2); exit }' "$work/fields"; }
list() { awk -v path="$1[" 'index($0, path) == 1 { print substr($0, index($0, "\t") + 1) }' "$work/fields"; }
number() { field "$1" | sed -n '/^[0-9][0-9]*$/p'; }
word() { field "$1" | sed -n '/^[a-z0-9][a-z0-9_-]*$/p'; }

annotate() { # error|warning|notice TEXT
  if [ "${GITHUB_ACTIONS:-}" = true ]; then
    printf '::%s title=Deploy::%s\n' "$1" "$(printf '%s' "$2" | sed 's/%/%25/g')"
  elif [ "$1" = notice ]; then
    printf '%s\n' "$2"
  else
    printf '%s: %s\n' "$1" "$2" >&2
  fi
}
usage() { # TEXT
  annotate error "$1"
  exit 2
}
is_plain() { # TEXT: whether it has printable ASCII only, and no space
  case $1 in '' | *[!!-~]*) return 1 ;; esac
}
quoted() { printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"; }
now() { date +%s; }

# The environment.
check() {
  command -v curl > /dev/null || usage "There is no curl, which this script needs."
  url=${SERVICE_WEBHOOK_URL:-} token=${SERVICE_WEBHOOK_TOKEN:-} id_token=${ROLLHOOK_ID_TOKEN:-} maker=
  maker_url=${ACTIONS_ID_TOKEN_REQUEST_URL:-} maker_token=${ACTIONS_ID_TOKEN_REQUEST_TOKEN:-}
  unset SERVICE_WEBHOOK_TOKEN ROLLHOOK_ID_TOKEN ACTIONS_ID_TOKEN_REQUEST_TOKEN
  [ -n "$url" ] || usage "SERVICE_WEBHOOK_URL is not set: it is the URL that rollhook app webhook enable prints."
  case $url in http://* | https://*) is_plain "$url" ;; *) false ;; esac || usage "SERVICE_WEBHOOK_URL is no http or https URL."
  case $url in
    https://* | http://127.* | http://localhost[:/]* | http://\[::1]*) ;;
    *) annotate warning "SERVICE_WEBHOOK_URL begins with http: who is on the way can read the token." ;;
  esac
  base=$(printf '%s' "${url%/api/v1/webhook/*}" | sed 's,//[^/]*@,//,')
  if [ -n "$token" ]; then
    is_plain "$token" || usage "SERVICE_WEBHOOK_TOKEN contains a space, a line break or another character that no token has."
  elif [ -n "$id_token" ]; then
    is_plain "$id_token" || usage "ROLLHOOK_ID_TOKEN contains a character that no id_token has."
  elif [ -n "$maker_url" ] && is_plain "$maker_url" && is_plain "$maker_token"; then
    maker=github audience=${ROLLHOOK_AUDIENCE:-$base}
    case $audience in *[!A-Za-z0-9._:/-]*) usage "ROLLHOOK_AUDIENCE is no audience." ;; esac
  else
    usage "SERVICE_WEBHOOK_TOKEN is empty or not set, and there is no id_token. Does this job get the secret? Jobs of forks do not, nor, if it is protected, those of other branches. Without a secret, GitHub needs permissions: id-token: write, and GitLab id_tokens: ROLLHOOK_ID_TOKEN (its component: the input audience)."
  fi
  for name in DEPLOY_TIMEOUT DEPLOY_RETRY; do
    eval "text=\${$name:-}"
    # shellcheck disable=SC2154 # eval sets it
    case $text in *[!0-9]* | ????????*) usage "$name is no number of seconds." ;; esac
  done
  sequence=$(sequence)
  case $sequence in
    '' | none) ;;
    0* | *[!0-9]* | ?????????????????*) usage "DEPLOY_SEQUENCE is no whole number from 1 to 9007199254740991, and not none." ;;
  esac
  timeout=${DEPLOY_TIMEOUT:-} retry=${DEPLOY_RETRY:-120}
  image=${IMAGE:-} commit=${COMMIT:-${GITHUB_SHA:-${CI_COMMIT_SHA:-}}}
  [ -n "$commit" ] || commit=$(git rev-parse HEAD 2> /dev/null)
  [ -n "$image$commit" ] || usage "Neither IMAGE nor COMMIT is set."
  [ "$(printf '%s' "$image$commit" | tr -d '\001-\037\177')" = "$image$commit" ] || usage "IMAGE or COMMIT contains a control character."
  body=
  [ -z "$image" ] || body="\"image\":$(quoted "$image")"
  [ -z "$commit" ] || body="$body${body:+,}\"commit\":$(quoted "$commit")"
  committed_at=$(committed_at)
  [ -z "$committed_at" ] || body="$body,\"committed_at\":\"$committed_at\""
  case $sequence in
    '') ;;
    none) body="$body,\"sequence\":\"none\"" ;;
    *) body="$body,\"sequence\":$sequence" ;;
  esac
  body="{$body}"
  trace=${TRACEPARENT:-}
  case $trace in *[!0-9a-f-]*) trace= ;; esac
  key=${IDEMPOTENCY_KEY:-$(run)-$(printf '%s' "$body" | checksum)}
  { is_plain "$key" && [ ${#key} -le 255 ]; } || usage "IDEMPOTENCY_KEY must be 1 to 255 printable characters without spaces."
}
# Prints the time of the commit, with which the lead time of the change begins; nothing where no repository has the commit.
committed_at() {
  case $commit in '' | -*) return 0 ;; esac
  at=$(git log -1 --format=%cI "$commit" -- 2> /dev/null) || return 0
  case $at in '' | *[!0-9TZ:+-]*) ;; *) printf '%s' "$at" ;; esac
}
# Prints the place of this run among those of the app. A run that is run again is somebody's decision, and may go back.
sequence() {
  case ${DEPLOY_SEQUENCE:-} in ?*) printf '%s' "$DEPLOY_SEQUENCE" && return 0 ;; esac
  if [ -z "${GITHUB_RUN_ID:-}" ]; then
    number=${CI_PIPELINE_ID:-}
  elif [ "${GITHUB_RUN_ATTEMPT:-1}" = 1 ]; then
    number=$GITHUB_RUN_ID
  else
    printf none && return 0
  fi
  case $number in 0* | *[!0-9]* | ????????????????*) ;; *) printf '%s' "$number" ;; esac
}
checksum() { # of one line; not every busybox has cksum
  awk '{ for (i = 1; i <= length($0); i++) {
    code = index("\"+-./0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ@_abcdefghijklmnopqrstuvwxyz", substr($0, i, 1))
    sum = (sum * 257 + code + i % 7) % 2147483647
  } print sum + 0 }'
}
# Names this run and attempt. A retried job of GitLab has another id; jobs of a matrix differ by the body.
run() {
  if [ -n "${GITHUB_RUN_ID:-}" ]; then
    printf '%s' "$GITHUB_RUN_ID-${GITHUB_RUN_ATTEMPT:-1}-${GITHUB_JOB:-}"
  elif [ -n "${CI_JOB_ID:-}" ]; then
    printf '%s' "${CI_PIPELINE_ID:-}-$CI_JOB_ID"
  else
    printf '%s' "$(now)-$$"
  fi
}

# One call. Sets http (000 without a whole answer), sent (whether the server may have got the call) and why.
request() { # URL HEADER CURL_ARGUMENTS...
  config="url = $(quoted "$1")
header = $(quoted "$2")"
  shift 2
  : > "$work/answer"
  : > "$work/headers"
  code=0
  told=$(printf '%s\n' "$config" | curl -q -K - -sS -g --proto =http,https --connect-timeout 10 \
    -D "$work/headers" -o "$work/answer" -w '%{http_code} %{time_pretransfer}' "$@" 2> "$work/error") || code=$?
  http=${told%% *} sent=no why=
  # curl has the connection, and with https the agreed key, before it counts the time until the transfer.
  case ${told#* } in *[1-9]*) sent=yes ;; esac
  if [ "$code" != 0 ]; then
    http=000 why=$(tail -n 1 "$work/error" | tr -d '\000-\037\177' | tr '#' ' ')
    why=${why:-curl: ($code)}
  fi
  config=
}
post() {
  left=$((deadline - $(now))) wait=50
  [ "$left" -ge 50 ] || wait=$left
  [ "$wait" -ge 1 ] || wait=1
  if [ -n "$maker" ] && ! ask_for_id_token; then return; fi
  if [ -n "$token" ]; then proof="X-Service-Token: $token"; else proof="Authorization: Bearer $id_token"; fi
  request "$url" "$proof" --max-time $((wait + 40)) -H 'Content-Type: application/json' -H "Prefer: wait=$wait" \
    -H "Idempotency-Key: $key" ${trace:+-H "traceparent: $trace"} --data-binary "$body"
  proof=
  read_json "$work/answer"
}
# GitHub's id_tokens are valid for minutes, so that each call has its own.
ask_for_id_token() {
  case $maker_url in *\?*) separator='&' ;; *) separator='?' ;; esac
  request "$maker_url${separator}audience=$audience" "Authorization: Bearer $maker_token" --max-time 30
  read_json "$work/answer"
  id_token=
  [ "$http" != 200 ] || id_token=$(field value)
  : > "$work/answer"
  : > "$work/fields"
  if is_plain "$id_token"; then return 0; fi
  sent=no why="GitHub gave no id_token (${why:-HTTP $http})"
  case $http in
    408 | 429) http=000 ;;
    4??) maker_said=$http http=no_id_token ;;
    *) http=000 ;;
  esac
  return 1
}

retry_after() {
  awk '/^HTTP\// { found = "" } tolower($1) == "retry-after:" { found = $2 + 0 } END { print found + 0 }' "$work/headers"
}
# The words of the server of a call that it refused.
reason() {
  said=$(field detail)
  [ -n "$said" ] || said="the answer is HTTP $http, and not rollhook's: is a proxy in front, or the URL wrong?"
  printf '%s' "$said"
}

# Waits before the same call is made again, or gives up. A repeated call deploys nothing twice: it has the same key.
again() { # WHY
  failures=$((failures + 1)) delay=$failures
  [ "$delay" -le 4 ] && delay=$((1 << (failures - 1))) || delay=15
  [ "$(retry_after)" -le "$delay" ] || delay=$(retry_after)
  moment=$(now) away_since=${away_since:-$(now)}
  if [ $((moment + delay)) -le $((away_since + retry)) ]; then
    printf 'No result yet (%s); trying again in %s s.\n' "$1" "$delay"
    sleep "$delay"
    return
  fi
  if [ -n "$revision" ]; then
    finish 9 unknown "Revision $revision was accepted, but there was no answer for $((moment - away_since)) s ($1). How it ended is not known. With IDEMPOTENCY_KEY=$key the script goes on waiting for it."
  elif [ -n "$maybe" ]; then
    finish 9 unknown "The connection broke after the call was sent ($1): the deploy may have been accepted. With IDEMPOTENCY_KEY=$key the script follows that deploy, and makes no second one."
  elif [ "$http" = 000 ]; then
    finish 5 unreachable "No connection was made; nothing was deployed: $1"
  fi
  finish 5 unavailable "The server takes no deploy for now; nothing was deployed: $1"
}

# Ends by an answer that no repetition mends. A deploy that was or may have been accepted before goes on all the same.
refused() { # EXIT_CODE STATUS TEXT
  now_answers="the server now answers HTTP $http"
  [ "$http" != no_id_token ] || now_answers="GitHub now answers HTTP $maker_said"
  if [ -n "$revision" ]; then
    finish 9 unknown "Revision $revision was accepted; $now_answers: its end is unknown. $3 With IDEMPOTENCY_KEY=$key the script goes on waiting for it."
  elif [ -n "$maybe" ]; then
    finish 9 unknown "An earlier call was sent, and the deploy may have been accepted; $now_answers: its end is unknown. $3 With IDEMPOTENCY_KEY=$key the script follows that deploy, and makes no second one."
  fi
  finish "$1" "$2" "$3"
}

# The restore that follows a failed rollout: the repeated call has its present state. The deploy has failed, whatever the
# answers are from here on.
follow_restore() {
  end=$(($(now) + 300))
  while [ -n "$(number restore.to)" ] && [ "$(now)" -lt "$end" ]; do
    case $(word restore.status) in '' | queued | building | rolling_out) ;; *) return ;; esac
    sleep 2
    cp "$work/fields" "$work/known"
    post
    if [ "$http" != 424 ] || [ "$(number revision)" != "$revision" ] || [ -z "$(word deploy.status)" ]; then
      mv "$work/known" "$work/fields"
      http=424
      return
    fi
  done
}
put_right() {
  restore=$(number restore.revision) to=$(number restore.to) runs=$(field restore.image)
  if [ -z "$to" ]; then
    [ "$(field deploy.on_cluster)" != true ] || printf 'Not put right: what was rolled out is still on the cluster.'
    return
  fi
  case $(word restore.status) in
    succeeded) printf 'Put right: revision %s runs %s again, as revision %s did.' "$restore" "$runs" "$to" ;;
    '' | queued | building | rolling_out) printf 'Being put right: the service rolls out %s of revision %s again; that had not ended yet.' "$runs" "$to" ;;
    failed) printf 'Not put right: the restore of revision %s (%s), which is revision %s, failed as well.' "$to" "$runs" "$restore" ;;
    *) printf 'The restore of revision %s, which is revision %s, was ended by another deploy or a person.' "$to" "$restore" ;;
  esac
}
# The states of several workloads, of which the server lists the one that failed first. Its message is that of the deploy.
workloads() {
  index=0
  while [ "$index" -lt 16 ]; do
    one="deploy.evidence.workloads[$index]" index=$((index + 1))
    name=$(field "$one.name") state=$(word "$one.state") text=
    [ -n "$name" ] || return 0
    [ "$state" != unfinished ] || text=$(field "$one.message")
    printf 'workload: %s: %s%s\n' "$name" "$state" "${text:+: $text}"
  done
}
evidence() {
  for part in container pod state; do
    text=$(field "deploy.evidence.$part")
    [ -z "$text" ] || printf '%s: %s\n' "$part" "$text"
  done
  workloads
  list deploy.evidence.events | sed 's/^/event: /'
  list deploy.evidence.log | sed 's/^/log: /'
}
show_evidence() {
  [ -s "$work/evidence" ] || return 0
  if [ "${GITHUB_ACTIONS:-}" = true ]; then
    printf '::group::Evidence\n'
    sed 's/^/  /' "$work/evidence"
    printf '::endgroup::\n'
  elif [ "${GITLAB_CI:-}" = true ]; then
    printf '\033[0Ksection_start:%s:rollhook_evidence[collapsed=true]\r\033[0KEvidence\n' "$(now)"
    sed 's/^/  /' "$work/evidence"
    printf '\033[0Ksection_end:%s:rollhook_evidence\r\033[0K\n' "$(now)"
  else
    printf 'Evidence:\n'
    sed 's/^/  /' "$work/evidence"
  fi
}

page() {
  namespace=$(word "$1namespace") app=$(word "$1app")
  [ -z "$namespace" ] || [ -z "$app" ] || [ -z "$revision" ] || printf '%s/apps/%s/%s/deploys/%s' "$base" "$namespace" "$app" "$revision"
}
write_outputs() { # STATUS
  [ -z "${GITHUB_OUTPUT:-}" ] || printf 'revision=%s\nstatus=%s\nurl=%s\n' "$revision" "$1" "$link" >> "$GITHUB_OUTPUT"
  [ -z "${DEPLOY_DOTENV:-}" ] || printf 'DEPLOY_REVISION=%s\nDEPLOY_STATUS=%s\nDEPLOY_URL=%s\n' "$revision" "$1" "$link" > "$DEPLOY_DOTENV"
}
# Text of others stands in code only: there Markdown has no links, images or tags.
code() { printf '%s' "$1" | tr '`|' "'/"; }
row() { [ -z "$2" ] || printf '| %s | \140%s\140 |\n' "$1" "$(code "$2")"; }
write_summary() { # STATUS TEXT
  [ -n "${GITHUB_STEP_SUMMARY:-}" ] || return 0
  {
    printf '### Deploy: %s\n\n| | |\n|---|---|\n' "$1"
    [ -z "$revision" ] || printf '| Revision | %s |\n' "${link:+[}$revision${link:+]($link)}"
    row Image "$image"
    row Commit "$commit"
    row Result "$2"
    row Restore "$restored"
    if [ -s "$work/evidence" ]; then
      printf '\n<details><summary>Evidence</summary>\n\n```text\n'
      tr '`' "'" < "$work/evidence"
      printf '```\n\n</details>\n'
    fi
    printf '\n'
  } >> "$GITHUB_STEP_SUMMARY"
}
finish() { # EXIT_CODE STATUS TEXT
  link=$(page "") restored=
  [ -n "$link" ] || link=$(page deploy.)
  : > "$work/evidence"
  if [ "$1" = 3 ]; then
    restored=$(put_right)
    evidence > "$work/evidence"
  fi
  show_evidence
  if [ "$1" = 0 ]; then annotate notice "$3"; else annotate error "$3"; fi
  [ -z "$restored" ] || annotate warning "$restored"
  [ "$1" = 0 ] || [ -z "$link" ] || printf 'See %s\n' "$link"
  write_outputs "$2"
  write_summary "$2" "$3"
  exit "$1"
}

accepted() {
  moment=$(now)
  if [ -z "$revision" ]; then
    revision=$(number revision) started=$moment began=${before:-$moment}
    printf 'Revision %s was accepted.\n' "$revision"
  fi
  within=$(number ends_within)
  [ -n "$timeout" ] || [ -z "$within" ] || deadline=$((started + within + 60))
  [ "$(word status)" = "$status" ] || printf 'Revision %s: %s\n' "$revision" "$(word status | tr _ ' ')"
  status=$(word status)
  asked=$(field decision.awaited_since)
  if [ -n "$asked" ] && [ "$asked" != "$awaited" ] && [ -z "$(word decision.verdict)" ]; then
    annotate warning "Revision $revision waits for a person's decision, as checks came to no verdict: $(field decision.reason). It is made with rollhook app verdict, or at $(page "")"
  fi
  awaited=$asked
  if [ "$moment" -ge "$deadline" ]; then
    finish 8 unfinished "Revision $revision has not ended after $((moment - began)) s (${status:-unknown}). The deploy goes on; with IDEMPOTENCY_KEY=$key the script goes on waiting for it."
  fi
  # A server that stops, or has too many waiting calls, answers at once.
  [ $((moment - before)) -ge 2 ] || sleep 2
}
succeeded() {
  ended=$(number revision) by=$(number superseded_by)
  if [ -z "$ended" ] || { [ "$(word status)" != succeeded ] && [ -z "$by" ]; }; then refused 1 refused "$(reason)"; fi
  revision=$ended
  case $(word reason) in
    older-sequence | older-commit)
      annotate warning "$(field message) If this run is to go back, do so with rollhook app rollback, or set DEPLOY_SEQUENCE=none."
      ;;
  esac
  if [ -n "$by" ]; then finish 0 superseded "Revision $revision was superseded by revision $by, which succeeded."; fi
  case $(field message) in
    *'not verified: '*) annotate notice "Revision $revision was not verified: $(field message | sed 's/.*not verified: //')" ;;
  esac
  finish 0 succeeded "Revision $revision succeeded: $(field namespace)/$(field app) runs $(field image)"
}
failed() {
  ended=$(number revision)
  [ "$(word deploy.status)" ] || refused 1 refused "$(reason)"
  revision=${ended:-$revision}
  printf '%s\n' "Failed: $(reason)"
  follow_restore
  finish 3 "$(word deploy.status)" "$(reason)"
}
locked() {
  until=$(field lock.until)
  refused 7 locked "$(reason)${until:+ (The lock ends at $until.)}"
}

main() {
  check
  work=$(mktemp -d "${TMPDIR:-/tmp}/rollhook.XXXXXX") || usage "No directory can be made in ${TMPDIR:-/tmp}."
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  : > "$work/fields"
  revision='' status='' awaited='' maybe='' away_since='' failures=0 started=$(now)
  deadline=$((started + ${timeout:-900}))
  while :; do
    before=$(now)
    post
    case $http in
      200 | 202 | 424) away_since='' failures=0 ;;
    esac
    case $http in
      200) succeeded ;;
      202) if [ -n "$(number revision)" ]; then accepted; else refused 1 refused "$(reason)"; fi ;;
      424) failed ;;
      000) no_answer ;;
      no_id_token) refused 4 unauthorized "$why. Does the job have the permission id-token: write?" ;;
      401 | 403) refused 4 unauthorized "$(reason)" ;;
      423) locked ;;
      408 | 429) again "$(reason)" ;;
      5??) unavailable ;;
      3??) refused 1 refused "The URL answers with a redirect (HTTP $http), which is not followed: the token would go elsewhere. Set SERVICE_WEBHOOK_URL to the webhook itself." ;;
      *) refused 1 refused "$(reason)" ;;
    esac
  done
}
no_answer() {
  [ "$sent" = no ] || maybe=yes
  # A wrong URL, an unknown protocol or a certificate that is not trusted does not mend by itself.
  case $code in
    1 | 2 | 3 | 4 | 5 | 51 | 53 | 54 | 58 | 59 | 60 | 66 | 77 | 80 | 82 | 83 | 90 | 91) retry=0 ;;
  esac
  again "$why"
}
# A proxy's own 502 says nothing of what became of the call; a refusal of rollhook does.
unavailable() {
  case $http$(word maybe_recorded) in 503false) ;; 503) [ -n "$(field request_id)" ] || maybe=yes ;; *) maybe=yes ;; esac
  again "$(reason)"
}

main
