package invariant_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
)

func TestSessions_ListsSessionsByName(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	conf := pool.Config().ConnConfig.Copy()
	conf.RuntimeParams["application_name"] = "cuelight serve"
	session, err := pgx.ConnectConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	if found, err := invariant.Sessions(t.Context(), pool, "cuelight"); err != nil || len(found) != 1 {
		t.Errorf("found %q, %v; want one", found, err)
	}
	if found, err := invariant.Sessions(t.Context(), session, "cuelight"); err != nil || len(found) != 0 {
		t.Errorf("found %q, %v; want none, since it skips its own", found, err)
	}
	if found, err := invariant.Sessions(t.Context(), pool, "other"); err != nil || len(found) != 0 {
		t.Errorf("found %q, %v; want none of another name", found, err)
	}
}

func TestFiles_ListsMatchesInSubdirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a/b/x.part", "a/x.mp4", "tmp-1/y", "z.part"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := invariant.Files([]string{"*.part", "tmp-*"}, filepath.Join(dir, "a"), filepath.Join(dir, "nowhere"), dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"a/b/x.part", "a/b/x.part", "tmp-1", "z.part"} {
		want = append(want, filepath.Join(dir, name))
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if _, err := invariant.Files([]string{"["}, dir); err == nil {
		t.Error("a malformed pattern gives no error")
	}
}
