# For the setup scripts of Debian, which source this file.

# prepare_install SCRIPT PACKAGE… sets install to apt-get as root, and updates the lists of packages. It exits if it may not install the packages.
prepare_install() {
  local script=$1
  shift
  if ! command -v apt-get >/dev/null; then
    echo "$script: this is not Debian; install with the system's package manager: $*" >&2
    exit 1
  fi
  install=(apt-get)
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "$script: no permission to install; run this script as root, for: $*" >&2
      exit 1
    fi
    install=(sudo -n apt-get)
  fi
  echo "$script: installing $*"
  export DEBIAN_FRONTEND=noninteractive
  "${install[@]}" update -qq
}
