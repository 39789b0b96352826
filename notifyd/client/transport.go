package client

import (
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
)

// newHTTPClient returns a client with connections of its own that speaks HTTP/2
// without TLS and notices a peer that no longer answers.
func newHTTPClient(cfg Config) *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	dialer := &net.Dialer{Timeout: cfg.DialTimeout, KeepAlive: 15 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext:     dialer.DialContext,
		Protocols:       &protocols,
		IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  cfg.PingAfter,
			PingTimeout:      cfg.PingTimeout,
			WriteByteTimeout: cfg.PingAfter + cfg.PingTimeout,
		},
	}}
}

// callOptions: the gRPC protocol for all calls, and no compression: on one
// machine or in one network it costs more than it saves.
func callOptions() []connect.ClientOption {
	return []connect.ClientOption{connect.WithGRPC(), connect.WithAcceptCompression("gzip", nil, nil)}
}
