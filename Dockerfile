# The operator's image: one static binary, no shell, not root. Our own checks have no container engine, so this file is not run by them.
#
#   docker build --tag YOUR-REGISTRY/relocator:0.1.0 . && docker push YOUR-REGISTRY/relocator:0.1.0
FROM rust:1-alpine AS build
RUN apk add --no-cache musl-dev gcc make
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package relocator --bin relocator

FROM scratch
LABEL org.opencontainers.image.title="relocator" \
      org.opencontainers.image.description="Relocates stateful pods off Kubernetes nodes safely, at a time that people choose" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /source/target/release/relocator /relocator
USER 65532:65532
ENTRYPOINT ["/relocator"]
