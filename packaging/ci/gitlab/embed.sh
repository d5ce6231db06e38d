#!/bin/sh
# Prints template.yml: job.yml with deploy.sh in it, for a component of GitLab can read no file beside it.
#   packaging/ci/gitlab/embed.sh > packaging/ci/gitlab/template.yml
set -eu
cd "$(dirname "$0")"
sed -e '/^ *@deploy\.sh@$/ {' -e 'r /dev/stdin' -e d -e '}' job.yml <<END
$(sed 's/^./      &/' ../deploy.sh)
END
