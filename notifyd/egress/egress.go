// Package egress makes HTTP clients for URLs that users give: they reach the public internet
// and the networks that the operator allows, and nothing else.
//
// What is not obvious: the check is made when dialling, on the address that the name has
// resolved to. A check of the URL before that can be fooled by a name that resolves otherwise
// a moment later. Redirects are not followed, and no proxy is used: behind one, the guard would see only
// the proxy's address.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// ErrBlocked is returned when an address is not public and not allowed.
var ErrBlocked = errors.New("address is not allowed")

// ParseNetworks reads networks in CIDR form.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", t)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// special are networks that are not public beside those that netip knows.
func special() []netip.Prefix {
	var out []netip.Prefix
	for _, t := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fec0::/10",
	} {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// metadata are the addresses where clouds give credentials away to whoever asks from inside.
func metadata() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}
}

// A Guard decides which addresses may be dialled.
type Guard struct {
	allow, block []netip.Prefix
	metadata     []netip.Addr
	resolver     *net.Resolver // nil: the system's
}

// NewGuard allows public addresses and the given networks, but of these no metadata address
// of a cloud that is not a network of its own.
func NewGuard(allow []netip.Prefix) *Guard {
	return &Guard{allow: allow, block: special(), metadata: metadata()}
}

// Allowed reports whether the address may be dialled.
func (g *Guard) Allowed(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	secret := slices.Contains(g.metadata, a)
	for _, p := range g.allow {
		if p.Contains(a) && (!secret || p.IsSingleIP()) {
			return true
		}
	}
	if !a.IsValid() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return false
	}
	for _, p := range g.block {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// control is called with each address before it is dialled.
func (g *Guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrBlocked, address)
	}
	return g.check(ap.Addr())
}

func (g *Guard) check(a netip.Addr) error {
	if !g.Allowed(a) {
		return fmt.Errorf("%w: %s is not public; egress_networks allows more", ErrBlocked, a)
	}
	return nil
}

// CheckHost says beforehand that the host of a URL is an address that may not be dialled. Where
// a name leads is known only when it is.
func (g *Guard) CheckHost(host string) error {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return g.check(a)
}

// Client is an HTTP client behind the guard. timeout is the longest of a whole call, answer
// included; idle is how many idle connections to one host are kept.
func (g *Guard) Client(timeout time.Duration, idle int) *http.Client {
	dialer := &net.Dialer{Timeout: timeout, ControlContext: g.control, Resolver: g.resolver}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			Proxy: nil, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout,
			ResponseHeaderTimeout: timeout, MaxResponseHeaderBytes: 16 << 10, MaxIdleConnsPerHost: idle, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
