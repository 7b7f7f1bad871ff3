#!/usr/bin/env bash
# Runs a Temporal cluster for tests: Temporal server on PostgreSQL with two server processes, on loopback addresses and free ports.
#
#   temporal-cluster.sh setup          install PostgreSQL (Debian) and build the Temporal server where missing; the build takes minutes, once
#   temporal-cluster.sh run CMD ARG…   start a cluster, run a command with TEMPOOL_CLUSTER set to its state folder, and remove the cluster
#   temporal-cluster.sh up             start a cluster in the folder TEMPOOL_CLUSTER
#   temporal-cluster.sh kill N         kill server process N (1 or 2) with SIGKILL
#   temporal-cluster.sh start N        start server process N, and wait until it listens
#   temporal-cluster.sh down           stop the cluster in TEMPOOL_CLUSTER, and remove its folder
#
# The folder contains frontends (one HOST:PORT for each server process), node1.log, node2.log and PostgreSQL's data.
set -euo pipefail

version=${TEMPORAL_SERVER_VERSION:-v1.32.1}
programs=${XDG_CACHE_HOME:-$HOME/.cache}/tempool/temporal-server-$version
here=$(cd "$(dirname "$0")" && pwd)

# as_postgres runs a command as the user postgres: PostgreSQL refuses to run as root.
as_postgres() {
  if [ "$(id -u)" -eq 0 ]; then
    (cd / && setpriv --reuid=postgres --regid=postgres --init-groups "$@")
  else
    "$@"
  fi
}

postgres_programs() {
  local folders=(/usr/lib/postgresql/*/bin)
  printf '%s' "${folders[-1]}"
}

setup() {
  if ! [ -x "$(postgres_programs)/initdb" ]; then
    local root=(env DEBIAN_FRONTEND=noninteractive)
    [ "$(id -u)" -eq 0 ] || root=(sudo -n "${root[@]}")
    echo "temporal-cluster: installing postgresql"
    "${root[@]}" apt-get update -qq
    "${root[@]}" apt-get install -y -qq --no-install-recommends postgresql-common >/dev/null
    # Without a database of the machine's own, which the package would start.
    "${root[@]}" sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    "${root[@]}" apt-get install -y -qq --no-install-recommends postgresql >/dev/null
  fi
  if ! [ -x "$programs/server" ] || ! [ -x "$programs/sql" ]; then
    mkdir -p "$programs"
    exec 9>"$programs/lock"
    flock 9 # another run may be building
    if ! [ -x "$programs/server" ] || ! [ -x "$programs/sql" ]; then
      echo "temporal-cluster: building Temporal server $version, which takes about ten minutes, once"
      local scratch
      scratch=$(mktemp -d "$programs/build-XXXXXX")
      trap 'rm -rf "$scratch"' EXIT
      GOBIN=$scratch GOFLAGS='' GOWORK=off go install "go.temporal.io/server/cmd/server@$version" "go.temporal.io/server/cmd/tools/sql@$version"
      mv "$scratch/server" "$scratch/sql" "$programs/"
      rm -rf "$scratch"
      trap - EXIT
    fi
    exec 9>&-
  fi
}

listens() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

# await TRIES COMMAND… runs a command every 100 ms until it succeeds.
await() {
  local tries=$1
  shift
  until "$@"; do
    tries=$((tries - 1))
    if [ "$tries" -le 0 ]; then
      echo "temporal-cluster: timed out waiting for: $*" >&2
      return 1
    fi
    sleep 0.1
  done
}

running() { [ -e "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

stopped() { ! running "$1"; }

# choose_addresses writes the addresses of a new cluster: two loopback addresses, and the first of a range of free ports. All processes of a
# cluster must use the same ports, so each needs an address of its own.
choose_addresses() {
  local net=127.$((RANDOM % 200 + 20)).$((RANDOM % 250 + 1)) base port
  for _ in $(seq 50); do
    base=$((RANDOM % 10000 + 20000))
    for port in $(seq "$base" $((base + 13))); do
      if listens "$net.1" "$port" || listens "$net.2" "$port"; then
        continue 2
      fi
    done
    printf 'net=%s\nbase=%s\n' "$net" "$base" >"$folder/addresses"
    return
  done
  echo 'temporal-cluster: no free range of ports' >&2
  return 1
}

start_node() {
  local address=$net.$1
  # shellcheck disable=SC2097,SC2098
  env DB=postgres12 DB_PORT=$((base + 12)) POSTGRES_USER=temporal POSTGRES_PWD=temporal POSTGRES_SEEDS="$net.1" \
    SQL_MAX_CONNS=20 SQL_VIS_MAX_CONNS=10 NUM_HISTORY_SHARDS=16 LOG_LEVEL=warn DYNAMIC_CONFIG_FILE_PATH="$folder/dynamic.yaml" \
    BIND_ON_IP="$address" TEMPORAL_BROADCAST_ADDRESS="$address" PROMETHEUS_ENDPOINT="$address:$((base + 11))" \
    FRONTEND_GRPC_PORT="$base" HISTORY_GRPC_PORT=$((base + 1)) MATCHING_GRPC_PORT=$((base + 2)) WORKER_GRPC_PORT=$((base + 3)) \
    FRONTEND_MEMBERSHIP_PORT=$((base + 4)) HISTORY_MEMBERSHIP_PORT=$((base + 5)) MATCHING_MEMBERSHIP_PORT=$((base + 6)) \
    WORKER_MEMBERSHIP_PORT=$((base + 7)) FRONTEND_HTTP_PORT=$((base + 8)) \
    setsid "$programs/server" --allow-no-auth start </dev/null >>"$folder/node$1.log" 2>&1 &
  echo $! >"$folder/node$1.pid"
  disown # bash reports nothing when it is killed
  await 600 listening_or_ended "$1"
  running "$folder/node$1.pid" || { echo "temporal-cluster: server process $1 ended:" >&2; tail -n 3 "$folder/node$1.log" >&2; return 1; }
}

listening_or_ended() { listens "$net.$1" "$base" || stopped "$folder/node$1.pid"; }

load() {
  folder=${TEMPOOL_CLUSTER:?set TEMPOOL_CLUSTER to the folder of the cluster}
  [ -e "$folder/addresses" ] || { echo "temporal-cluster: $folder has no cluster; start one: TEMPOOL_CLUSTER=$folder $0 up" >&2; exit 1; }
  # shellcheck source=/dev/null
  . "$folder/addresses"
}

create_database() { # NAME SCHEMA-FOLDER
  local sql=("$programs/sql" --plugin postgres12 --ep "$net.1" -p $((base + 12)) -u temporal --pw temporal --db "$1")
  {
    "${sql[@]}" create
    "${sql[@]}" setup-schema -v 0.0
    "${sql[@]}" update-schema -d "$2"
  } >>"$folder/schema.log" 2>&1
}

up() {
  folder=${TEMPOOL_CLUSTER:?set TEMPOOL_CLUSTER to a new folder}
  mkdir -p "$folder"
  chmod 755 "$folder"
  [ -e "$folder/addresses" ] || choose_addresses
  load
  cp "$here/temporal-cluster.yaml" "$folder/dynamic.yaml"
  local bin schema fresh=''
  bin=$(postgres_programs)
  if ! [ -d "$folder/postgres" ]; then
    fresh=yes
    mkdir -m 700 "$folder/postgres"
    [ "$(id -u)" -ne 0 ] || chown postgres: "$folder/postgres"
    as_postgres "$bin/initdb" -D "$folder/postgres" -U temporal -A trust -E UTF8 --locale=C -N >/dev/null
  fi
  # A crash of the machine may lose the data of a test.
  as_postgres "$bin/pg_ctl" -D "$folder/postgres" -w -l "$folder/postgres/log" \
    -o "-p $((base + 12)) -c listen_addresses=$net.1 -c unix_socket_directories= -c fsync=off -c max_connections=200" start >/dev/null
  if [ -n "$fresh" ]; then
    schema=$(GOFLAGS='' GOWORK=off go mod download -json "go.temporal.io/server@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/schema/postgresql/v12
    create_database temporal "$schema/temporal/versioned"
    create_database temporal_visibility "$schema/visibility/versioned"
  fi
  # One after the other: at their first start both would write the cluster's description.
  start_node 1
  start_node 2
  printf '%s\n' "$net.1:$base" "$net.2:$base" >"$folder/frontends"
}

down() {
  load
  local node
  for node in 1 2; do
    running "$folder/node$node.pid" && kill "$(cat "$folder/node$node.pid")" || true
  done
  for node in 1 2; do
    await 150 stopped "$folder/node$node.pid" || kill -9 "$(cat "$folder/node$node.pid")" || true
  done
  as_postgres "$(postgres_programs)/pg_ctl" -D "$folder/postgres" -m immediate -w stop >/dev/null || true
  rm -rf "$folder"
}

case ${1:-} in
setup) setup ;;
up) up ;;
down) down ;;
run)
  shift
  TEMPOOL_CLUSTER=$(mktemp -d "${TMPDIR:-/tmp}/tempool-cluster-XXXXXX")
  export TEMPOOL_CLUSTER
  trap 'if [ -e "$TEMPOOL_CLUSTER/addresses" ]; then down; fi' EXIT
  up
  "$@"
  ;;
kill)
  load
  kill -9 "$(cat "$folder/node$2.pid")"
  await 100 stopped "$folder/node$2.pid"
  ;;
start)
  load
  start_node "$2"
  ;;
*)
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
