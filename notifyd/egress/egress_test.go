package egress

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestOnlyPublicAndAllowedAddressesMayBeDialled(t *testing.T) {
	allow, err := ParseNetworks([]string{"10.1.0.0/16", "::1/128"})
	if err != nil {
		t.Fatal(err)
	}
	g := NewGuard(allow)
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "10.1.2.3": true, "::1": true,
		"127.0.0.1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "10.2.0.1": false, "192.168.1.1": false, "172.16.0.1": false,
		"169.254.169.254": false, "100.64.0.1": false, "198.18.0.1": false, "240.0.0.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"fc00::1": false, "fe80::1%eth0": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "::": false, "2001:db8::1": false,
	} {
		if got := g.Allowed(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: allowed %v, want %v", address, got, want)
		}
	}
	if _, err := ParseNetworks([]string{"10.0.0.0"}); err == nil {
		t.Error("an address was taken for a network")
	}
}

func TestMetadataAddressesOfCloudsAreAllowedOnlyByThemselves(t *testing.T) {
	for _, address := range []string{"169.254.169.254", "100.100.100.200", "fd00:ec2::254"} {
		a := netip.MustParseAddr(address)
		everything := NewGuard([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")})
		if everything.Allowed(a) {
			t.Errorf("%s is allowed by a network around it", a)
		}
		if !NewGuard([]netip.Prefix{netip.PrefixFrom(a, a.BitLen())}).Allowed(a) {
			t.Errorf("%s is refused although it is named", a)
		}
	}
}

func TestTheGuardStandsAtTheDialAndRedirectsAreNotFollowed(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		http.Redirect(w, r, "/again", http.StatusFound)
	}))
	defer server.Close()
	for _, host := range []string{"127.0.0.1", "localhost"} {
		url := strings.Replace(server.URL, "127.0.0.1", host, 1)
		if _, err := NewGuard(nil).Client(time.Second, 1).Get(url); !errors.Is(err, ErrBlocked) {
			t.Errorf("%s: %v, want ErrBlocked", url, err)
		}
	}
	if calls != 0 {
		t.Fatalf("%d calls came through", calls)
	}
	res, err := NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}).Client(5*time.Second, 1).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusFound || calls != 1 {
		t.Errorf("status %d after %d calls, want the redirect itself after one", res.StatusCode, calls)
	}
}
