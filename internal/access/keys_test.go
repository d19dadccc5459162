package access_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// keyFixture is the keys of a database.
type keyFixture struct {
	*access.KeyStore
	pool *pgxpool.Pool
}

func newKeyFixture(t *testing.T) keyFixture {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	return keyFixture{access.NewKeyStore(pool), pool}
}

func TestCreateKey_StoresOnlyTheDigest(t *testing.T) {
	t.Parallel()
	b := newKeyFixture(t)
	k, text, err := b.CreateKey(t.Context(), "build server", access.Submit.String())
	if err != nil {
		t.Fatal(err)
	}
	if prefix, ok := access.KeyPrefix(text); !ok || prefix != k.Prefix {
		t.Errorf("the prefix of %q is %q, %t; the key says %q", text, prefix, ok, k.Prefix)
	}
	found, err := b.FindKey(t.Context(), k.Prefix)
	if err != nil || found.ID != k.ID || found.Digest != sha256.Sum256([]byte(text)) ||
		found.Scope != access.Submit.String() || found.RevokedAt != nil {
		t.Errorf("found %+v, %v", found, err)
	}
	var row string
	if err := b.pool.QueryRow(t.Context(), "select k::text from cuelight_keys k").Scan(&row); err != nil {
		t.Fatal(err)
	}
	if secret := text[len(text)-43:]; strings.Contains(row, secret) {
		t.Errorf("the row has the key: %s", row)
	}
	if _, err := b.FindKey(t.Context(), "aaaaaaaa"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown prefix: %v", err)
	}
}

func TestCreateKey_RejectsInvalidNamesAndScopes(t *testing.T) {
	t.Parallel()
	b := newKeyFixture(t)
	for _, c := range []struct{ name, scope string }{
		{"", "read"}, {" ", "read"}, {strings.Repeat("x", 201), "read"}, {"a\x00b", "read"}, {"\xff", "read"},
		{"a\x1b[31m", "read"}, {"a\nb", "read"}, {"a\u202eb", "read"}, {"a", "root"}, {"a", ""},
	} {
		_, _, err := b.CreateKey(t.Context(), c.name, c.scope)
		if !errors.Is(err, access.ErrInvalidKey) || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestCreateKey_StoresTheLabelsOfWorkers(t *testing.T) {
	t.Parallel()
	b := newKeyFixture(t)
	k, _, err := b.CreateKey(t.Context(), "north", access.Work.String(), "north", "gpu")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := b.FindKey(t.Context(), k.Prefix); err != nil || !slices.Equal(found.Labels, []string{"north", "gpu"}) {
		t.Errorf("found %+v, %v", found, err)
	}
	for scope, label := range map[access.Scope]string{access.Submit: "north", access.Work: "two words"} {
		if _, _, err := b.CreateKey(t.Context(), "x", scope.String(), label); !errors.Is(err, access.ErrInvalidKey) {
			t.Errorf("scope %s, label %q: %v", scope, label, err)
		}
	}
}

func TestRevokeKey_KeepsTheFirstTime(t *testing.T) {
	t.Parallel()
	b := newKeyFixture(t)
	k, _, err := b.CreateKey(t.Context(), "x", access.Read.String())
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.RevokeKey(t.Context(), k.ID)
	if err != nil || first.RevokedAt == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := b.RevokeKey(t.Context(), k.ID)
	if err != nil || !second.RevokedAt.Equal(*first.RevokedAt) {
		t.Errorf("revoked at %v, then at %v, %v", first.RevokedAt, second.RevokedAt, err)
	}
	if keys, err := b.Keys(t.Context()); err != nil || len(keys) != 1 || keys[0].RevokedAt == nil {
		t.Errorf("keys are %+v, %v", keys, err)
	}
	if _, err := b.RevokeKey(t.Context(), store.ID{1}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestDisableKey_LastsUntilTheKeyIsEnabled(t *testing.T) {
	t.Parallel()
	b := newKeyFixture(t)
	k, _, err := b.CreateKey(t.Context(), "x", access.Work.String())
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.DisableKey(t.Context(), k.ID)
	if err != nil || first.DisabledAt == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := b.DisableKey(t.Context(), k.ID)
	if err != nil || !second.DisabledAt.Equal(*first.DisabledAt) {
		t.Errorf("disabled at %v, then at %v, %v", first.DisabledAt, second.DisabledAt, err)
	}
	for range 2 {
		if enabled, err := b.EnableKey(t.Context(), k.ID); err != nil || enabled.DisabledAt != nil {
			t.Errorf("enabled: %+v, %v", enabled, err)
		}
	}
	if _, err := b.RevokeKey(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	for act, change := range map[string]func(context.Context, store.ID) (access.Key, error){
		"disable": b.DisableKey, "enable": b.EnableKey,
	} {
		if _, err := change(t.Context(), k.ID); !errors.Is(err, access.ErrInvalidKey) {
			t.Errorf("%s a revoked key: %v", act, err)
		}
		if _, err := change(t.Context(), store.ID{1}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s an unknown key: %v", act, err)
		}
	}
	if k, err := b.FindKey(t.Context(), k.Prefix); err != nil || k.DisabledAt != nil || k.RevokedAt == nil {
		t.Errorf("the revoked key is %+v, %v", k, err)
	}
}

func TestUseKey_RecordsTheTimeOncePerMinute(t *testing.T) {
	t.Parallel()
	b := newKeyFixture(t)
	k, _, err := b.CreateKey(t.Context(), "x", access.Read.String())
	if err != nil {
		t.Fatal(err)
	}
	used := func() access.Key {
		t.Helper()
		if err := b.UseKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		k, err := b.FindKey(t.Context(), k.Prefix)
		if err != nil || k.UsedAt == nil {
			t.Fatalf("%+v, %v", k, err)
		}
		return k
	}
	first := used()
	if second := used(); !second.UsedAt.Equal(*first.UsedAt) {
		t.Errorf("recorded twice within a minute: %v, %v", first.UsedAt, second.UsedAt)
	}
	if _, err := b.pool.Exec(t.Context(), "update cuelight_keys set used_at = now() - interval '61 s'"); err != nil {
		t.Fatal(err)
	}
	if later := used(); !later.UsedAt.After(*first.UsedAt) {
		t.Errorf("not recorded after a minute: %v", later.UsedAt)
	}
}

func FuzzKeyPrefix(f *testing.F) {
	f.Add("cue_abcdefgh_" + strings.Repeat("A", 43))
	f.Add("cue_abcdefgh_" + strings.Repeat("_", 43))
	f.Add("cue_ABCDEFGH_" + strings.Repeat("A", 43))
	f.Add("cue_")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		prefix, ok := access.KeyPrefix(text)
		if ok != (prefix != "") {
			t.Fatalf("%q: %q, %t", text, prefix, ok)
		}
		if ok && (!strings.HasPrefix(text, "cue_"+prefix+"_") || len(prefix) != 8 || len(text) != 56) {
			t.Errorf("%q has the prefix %q", text, prefix)
		}
	})
}
