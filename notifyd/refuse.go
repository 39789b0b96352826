package notifyd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"notifymirror/notifyd/message"
)

// refuse answers what is no call, with the body that the protocols leave out, and by its length
// a request that is too large, without reading it.
func (b *Broker) refuse(next http.Handler) http.Handler {
	protocols := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			writeRefusal(w, http.StatusMethodNotAllowed, r.Method+" is not a call: use POST")
		case !spoken(r.Header.Get("Content-Type")):
			writeRefusal(w, http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type %q: use application/json, or a client of gRPC or Connect", r.Header.Get("Content-Type")))
		case r.ContentLength > int64(b.maxRequest()):
			// An error here means that the client has gone.
			_ = protocols.Write(w, r, rpcError(&message.FieldError{Field: "body", Rule: fmt.Sprintf("the request is too large for any body of at most %d bytes", b.cfg.MaxBodyBytes),
				Size: int(r.ContentLength), Limit: b.maxRequest()}))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// spoken tells whether a protocol of the API has that content type.
func spoken(contentType string) bool {
	kind, ok := strings.CutPrefix(contentType, "application/")
	return ok && (strings.HasPrefix(kind, "json") || strings.HasPrefix(kind, "proto") || strings.HasPrefix(kind, "grpc") || strings.HasPrefix(kind, "connect+"))
}

// writeRefusal writes an error as the API's JSON has it.
func writeRefusal(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here means that the client has gone.
	_ = json.NewEncoder(w).Encode(map[string]string{"code": connect.CodeUnimplemented.String(), "message": text})
}
