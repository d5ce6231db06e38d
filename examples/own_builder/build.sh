# Builds one commit in the directory of its build: REPOSITORY COMMIT IMAGE_REPOSITORY
#
# Standard input is the app's lock: each process of the build holds it, so that the build has ended when it is free.
# The file `end` appears in one step, and says how: a reason or "built", the commit in full, the image or a message.
exec > log 2>&1

end() {
  printf '%s\n' "$@" > end.new
  mv end.new end
  exit 0
}

all=$(git -C "$1" rev-list --all) || end source-unreachable '' "The repository $1 cannot be read."
commit=$(printf '%s\n' "$all" | grep -i "^$2")
case $(printf '%s' "$commit" | grep -c .) in
0) end commit-not-found '' "The repository has no commit $2." ;;
1) ;;
*) end commit-ambiguous '' "More than one commit begins with $2." ;;
esac

git clone --quiet --no-checkout "$1" source && git -C source checkout --quiet --detach "$commit" ||
  end build-failed "$commit" "The commit could not be checked out."
(cd source && sh ./build.sh) || end build-failed "$commit" "build.sh ended with status $?."
tar -C source/public --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf site.tar . ||
  end build-failed "$commit" "build.sh has made no directory public."
end built "$commit" "$3@sha256:$(sha256sum < site.tar | cut -c1-64)"
