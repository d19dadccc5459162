package daemon

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight/internal/access"
)

func TestFailedLogin_IsLoggedWithTheKeyOfItsPrefix(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	for _, key := range []access.Key{{}, {Prefix: "k3j9x2mq", Name: "studio"}} {
		logRefusal(zap.New(core), netip.MustParseAddr("127.0.0.1"), key, errors.New("unknown"))
	}
	var got []map[string]any
	for _, line := range logs.TakeAll() {
		got = append(got, line.ContextMap())
	}
	want := []map[string]any{
		{"address": "127.0.0.1", "reason": "unknown"},
		{"address": "127.0.0.1", "reason": "unknown", "key": "key k3j9x2mq (studio)"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the lines have %v, want %v", got, want)
	}
}
