package storage_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

func TestCheck_FindsNothingAtAStrictServerAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{TLS: true})
	b := open(t, "s3://"+bucketName+"/a/b", s.Env(), storage.Options{})
	found := b.Check(t.Context())
	if len(found) != 1 || found[0].Status != "ok" || !strings.Contains(found[0].Detail, "s3://videos/a/b") {
		t.Errorf("%+v", found)
	}
	for o := range s.Client(t).ListObjects(t.Context(), bucketName, minio.ListObjectsOptions{Recursive: true}) {
		t.Errorf("%s was left, %v", o.Key, o.Err)
	}
	checkNoUploads(t, s)
}

// alter starts a proxy that changes answers.
func alter(t *testing.T, s *s3test.Server, change func(*http.Response) error) environment {
	t.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		Transport: base, ModifyResponse: change,
	})
	t.Cleanup(func() { server.Close(); base.CloseIdleConnections() })
	return with(s.Env(), "AWS_ENDPOINT_URL", server.URL)
}

func TestCheck_NamesServersThatLoseData(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	ignore := func(condition string) func(r *http.Response) error {
		return func(r *http.Response) error {
			if r.Request.Header.Get(condition) != "" && r.StatusCode == http.StatusPreconditionFailed {
				r.StatusCode, r.Body = http.StatusOK, http.NoBody
				r.Header.Set("ETag", `"0123"`)
				r.Header.Set("Content-Length", "0")
			}
			return nil
		}
	}
	var hasDeleted atomic.Bool
	for want, change := range map[string]func(*http.Response) error{
		"it ignores If-None-Match": ignore("If-None-Match"),
		"it ignores If-Match":      ignore("If-Match"),
		"it ignores Range": func(r *http.Response) error {
			if r.StatusCode != http.StatusPartialContent {
				return nil
			}
			bucket, key, _ := strings.Cut(strings.TrimPrefix(r.Request.URL.Path, "/"), "/")
			whole, err := s.Client(t).GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, r.Body)
			r.StatusCode, r.Body, r.ContentLength = http.StatusOK, whole, -1
			r.Header.Del("Content-Range")
			r.Header.Del("Content-Length")
			return nil
		},
		"after it has deleted them": func(r *http.Response) error {
			query := r.Request.URL.Query()
			if query.Has("delete") {
				hasDeleted.Store(true)
			}
			if hasDeleted.Load() && query.Has("list-type") && query.Get("delimiter") == "" {
				r.Body = io.NopCloser(strings.NewReader(`<ListBucketResult><Contents><Key>x</Key></Contents></ListBucketResult>`))
				r.ContentLength = -1
				r.Header.Del("Content-Length")
			}
			return nil
		},
	} {
		found := open(t, "s3://"+bucketName, alter(t, s, change), storage.Options{}).Check(t.Context())
		if len(found) == 0 || found[0].Status != "failed" || !strings.Contains(found[0].Detail, want) || found[0].Fix == "" {
			t.Errorf("%s: %+v", want, found)
		}
	}
}

func TestCheck_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	b := open(t, "s3://nowhere", s.Env(), storage.Options{})
	found := b.Check(t.Context())
	if len(found) != 1 || found[0].Status != "failed" || !strings.Contains(found[0].Detail, "nowhere does not exist") ||
		!strings.Contains(found[0].Fix, "create it") || strings.Contains(found[0].Detail, "\n") {
		t.Errorf("%+v", found)
	}
	slow := alter(t, s, func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(-4*time.Minute).UTC().Format(http.TimeFormat))
		return nil
	})
	found = open(t, "s3://"+bucketName, slow, storage.Options{}).Check(t.Context())
	if len(found) != 2 || found[0].Status != "ok" || found[1].Status != "warning" || !strings.Contains(found[1].Detail, "by 4m") {
		t.Errorf("%+v", found)
	}
	denied := alter(t, s, func(r *http.Response) error {
		if r.Request.Method == http.MethodPut {
			r.StatusCode, r.Body = http.StatusForbidden, http.NoBody
		}
		return nil
	})
	found = open(t, "s3://"+bucketName, denied, storage.Options{}).Check(t.Context())
	if len(found) != 1 || !strings.Contains(found[0].Detail, "not allowed") || !strings.Contains(found[0].Fix, "docs/storage.md") {
		t.Errorf("%+v", found)
	}
}
