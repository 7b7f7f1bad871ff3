# The command tempool, with Python 3 and Node for the subprocesses of the pools.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG COMMIT=
ARG DATE=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -o /out/ -ldflags="-s -w \
  -X github.com/tempool/tempool/internal/buildinfo.commit=$COMMIT -X github.com/tempool/tempool/internal/buildinfo.date=$DATE" \
  ./cmd/tempool

FROM debian:12-slim
ARG COMMIT=
LABEL org.opencontainers.image.title="Tempool" org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.source="https://github.com/tempool/tempool" org.opencontainers.image.revision="$COMMIT"
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates nodejs python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --create-home --home-dir /var/lib/tempool --shell /usr/sbin/nologin tempool
COPY --from=build /out/tempool /usr/local/bin/
COPY sdk /usr/local/share/tempool/sdk
COPY examples /usr/local/share/tempool/examples
USER tempool
WORKDIR /usr/local/share/tempool
VOLUME /var/lib/tempool
# The gateway listens on the container's loopback: other addresses need TLS and a token. The socket in the state folder never does.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "import socket; s = socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect('/var/lib/tempool/gateway.sock'); s.send(b'GET /healthz HTTP/1.0\\n\\n'); assert b' 200 ' in s.recv(20)"]
# On SIGTERM the agent finishes the calls in flight; give the container a stop grace period of more than 60 s.
STOPSIGNAL SIGTERM
EXPOSE 7460
ENTRYPOINT ["tempool"]
CMD ["agent", "--state-dir", "/var/lib/tempool"]
