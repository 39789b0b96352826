package webhook

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"
)

func TestThePublicVerifierAcceptsEverySignature(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 1000).Draw(t, "body")
		id := rapid.StringMatching(`[0-9a-f-]{36}`).Draw(t, "id")
		old, fresh := NewSecret(), NewSecret()
		h := http.Header{}
		Sign(h, id, time.Now(), body, fresh, old)
		for name, s := range map[string]Secret{"first": fresh, "second": old} {
			verifier, err := standardwebhooks.NewWebhook(s.Text())
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify(body, h); err != nil {
				t.Errorf("by the %s secret: %v", name, err)
			}
			if verifier.Verify(append(bytes.Clone(body), '!'), h) == nil {
				t.Error("another body is accepted")
			}
		}
		stranger, err := standardwebhooks.NewWebhook(NewSecret().Text())
		if err != nil {
			t.Fatal(err)
		}
		if stranger.Verify(body, h) == nil {
			t.Error("a secret that did not sign is accepted")
		}
	})
}

// The example of the specification.
func TestASignatureIsThatOfTheSpecification(t *testing.T) {
	s, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), s)
	if got, want := h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %q, want %q", got, want)
	}
}

func TestSecretsAreReadByTheirRulesAndNeverPrinted(t *testing.T) {
	encode := func(n int) string {
		return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n))
	}
	for _, n := range []int{24, 31, 32, 64} {
		s, err := ParseSecret(" " + encode(n) + "\n")
		if err != nil || s.Text() != encode(n) {
			t.Errorf("%d bytes: %v", n, err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, s); strings.Contains(text, "Bwc") || strings.Contains(text, "7, ") {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
	for _, bad := range []string{"", "whsec_", encode(23), encode(65), encode(32)[6:], "whsec_!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"} {
		_, err := ParseSecret(bad)
		if err == nil || len(bad) > 10 && strings.Contains(err.Error(), bad[8:]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
