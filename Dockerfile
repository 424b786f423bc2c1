# The image for those who have Docker: docker build -t registry.example.org/machine-controller-fleet:0.1.0 .
# `make image` builds releases, without Docker, and the same each time. This one is not reproducible: its base images are named
# by tags, which move. Pin them by digest in a copy of your own where that matters.
ARG GO_VERSION=1.26
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /source
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION= COMMIT= DATE=
RUN package=github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo && \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X $package.version=$VERSION -X $package.commit=$COMMIT -X $package.date=$DATE" \
      -o /machine-controller-fleet ./cmd/machine-controller-fleet

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /machine-controller-fleet /machine-controller-fleet
COPY LICENSE /licenses/LICENSE
USER 65532:65532
ENTRYPOINT ["/machine-controller-fleet"]
