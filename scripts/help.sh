# shellcheck shell=sh
# Not a script: the scripts source it first. If an argument is -h or --help, it prints the comment at the head
# of the script and ends the script, before anything is installed or built.
for argument in "$@"; do
  case $argument in
    -h | --help)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
  esac
done
