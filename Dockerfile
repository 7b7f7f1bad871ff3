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
# The gateway listens on the container's loopback: other addresses need TLS and a token.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7460/healthz', timeout=3)"]
# On SIGTERM the agent finishes the calls in flight; give the container a stop grace period of more than 60 s.
STOPSIGNAL SIGTERM
EXPOSE 7460
ENTRYPOINT ["tempool"]
CMD ["agent", "--state-dir", "/var/lib/tempool"]
