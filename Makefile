.PHONY: generate
generate: ## Regenerate the API from its protobuf definition.
	go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
	PATH="$(CURDIR)/bin:$$PATH" protoc -I notifyd/api --go_out=. --go_opt=module=notifymirror --connect-go_out=. --connect-go_opt=module=notifymirror notifyd/api/notify/v1/notify.proto
