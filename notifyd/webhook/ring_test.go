package webhook

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func key(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func ring(t *testing.T, keys ...string) *Ring {
	t.Helper()
	r, err := ParseRing(keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestASealedSecretOpensWithItsKeyAndForItsOwnerOnly(t *testing.T) {
	s := NewSecret()
	r := ring(t, key("b", 2), key("a", 1))
	id, sealed, err := r.Seal(s, "group 7")
	if err != nil || id != "b" {
		t.Fatalf("sealed with %q: %v", id, err)
	}
	if bytes.Contains(sealed, s.key) {
		t.Fatal("the secret stands in what is sealed")
	}
	if got, err := ring(t, key("c", 3), key("b", 2)).Open(id, sealed, "group 7"); err != nil || got.Text() != s.Text() {
		t.Errorf("with the key in another place: %v", err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		ring   *Ring
		sealed []byte
		owner  string
		want   error
	}{
		"another owner": {r, sealed, "group 8", ErrSealed},
		"changed":       {r, changed, "group 7", ErrSealed},
		"cut":           {r, sealed[:5], "group 7", ErrSealed},
		"another key":   {ring(t, key("b", 9)), sealed, "group 7", ErrSealed},
		"no key":        {ring(t, key("a", 1)), sealed, "group 7", ErrNoKey},
	} {
		if _, err := c.ring.Open(id, c.sealed, c.owner); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, _, err := ring(t).Seal(s, "group 7"); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key: %v, want ErrNoKey", err)
	}
}

func TestBadKeysAreRefusedAndNotQuoted(t *testing.T) {
	short := "a:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 31))
	for name, keys := range map[string][]string{
		"no id": {key("", 1)}, "odd id": {key("a b", 1)}, "no key": {"a"}, "short": {short}, "not base64": {"a:%%%%"}, "twice": {key("a", 1), key("a", 2)},
	} {
		_, err := ParseRing(keys)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.Contains(err.Error(), "AQEB") || strings.Contains(err.Error(), "%%") {
			t.Errorf("%s: the error quotes the key: %v", name, err)
		}
	}
}

func TestURLsAreCheckedBeforeTheyAreKept(t *testing.T) {
	for _, good := range []string{"https://example.com/hook?x=1", "http://10.0.0.1:8080", "https://[2001:db8::1]/"} {
		if err := CheckURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "example.com", "ftp://example.com", "https://", "https://user:pw@example.com", "https://example.com/#x", "https://exa mple.com", "https://" + strings.Repeat("a", 1000)} {
		if CheckURL(bad) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
