package storage_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

// checkKind checks an error of the service and the sentence for the operator.
func checkKind(t *testing.T, name string, err error, kind storage.Kind, hint string) {
	t.Helper()
	e, ok := errors.AsType[*storage.ServiceError](err)
	if !ok {
		t.Errorf("%s: %v is no error of the service", name, err)
		return
	}
	if e.Kind != kind || !strings.Contains(e.Hint, hint) || strings.Contains(e.Error(), "\n") || e.Text == "" {
		t.Errorf("%s: %s: %v; want %s, %q", name, e.Kind, e, kind, hint)
	}
	withoutNames := strings.ReplaceAll(err.Error(), "aws_secret_access_key", "")
	if !strings.Contains(err.Error(), e.Error()) || strings.Contains(withoutNames, "secret") {
		t.Errorf("%s: the error is %v", name, err)
	}
}

func TestErrors_OfAServerSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{TLS: true})
	proxy := s3test.NewProxy(t, s)
	options := storage.Options{Tries: 2, IdleTimeout: time.Minute}
	read := func(address string, env environment) error {
		b := open(t, address, env, options)
		_, _, err := b.ReadDocument(t.Context(), "document")
		_, listErr := b.ListArtifacts(t.Context(), "")
		if (err == nil) != (listErr == nil) {
			t.Errorf("%s: read %v, list %v", address, err, listErr)
		}
		return err
	}
	checkKind(t, "no bucket", read("s3://nowhere", s.Env()), storage.NoBucket, "create it")
	checkKind(t, "wrong key", read("s3://videos", with(s.Env(), "AWS_ACCESS_KEY_ID", "other")), storage.Credentials, "AWS_ACCESS_KEY_ID")
	checkKind(t, "wrong secret", read("s3://videos", with(s.Env(), "AWS_SECRET_ACCESS_KEY", "secret")),
		storage.Credentials, "AWS_SECRET_ACCESS_KEY")
	checkKind(t, "untrusted", read("s3://videos", with(s.Env(), "AWS_CA_BUNDLE", "")), storage.Certificate, "AWS_CA_BUNDLE")
	checkKind(t, "http", read("s3://videos", with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint[:4]+"s"+proxy.Endpoint[4:])),
		storage.Unsuitable, "AWS_ENDPOINT_URL")
	checkKind(t, "region", read("s3://videos?region=eu-west-1", s.Env()), storage.Region, "AWS_REGION")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	checkKind(t, "refused", read("s3://videos", with(s.Env(), "AWS_ENDPOINT_URL", "http://"+listener.Addr().String())),
		storage.Refused, "start the service")

	options.IdleTimeout = 50 * time.Millisecond
	options.Tries = 1
	proxy.Inject(func(int, *http.Request) s3test.Fault { return s3test.NoAnswer })
	checkKind(t, "slow", read("s3://videos", with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint)), storage.Slow, "network")
	options.Dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "s3.example", IsNotFound: true}}
	}
	checkKind(t, "DNS", read("s3://videos", s.Env()), storage.Name, "DNS")
}

func TestErrors_OfAFullBucketKeepTheUploadForLater(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), smallParts)
	dir := someFiles.write(t)
	proxy.Inject(func(_ int, r *http.Request) s3test.Fault {
		if r.URL.Query().Get("partNumber") == "2" {
			return s3test.Full
		}
		return ""
	})
	_, err := b.PutArtifact(t.Context(), "a", dir, nil)
	checkKind(t, "full", err, storage.Full, "quota")
	proxy.Inject(nil)
	proxy.Reset()
	if _, err := b.PutArtifact(t.Context(), "a", dir, nil); err != nil {
		t.Fatal(err)
	}
	if sent, _ := proxy.Bytes(); sent > mib+slack {
		t.Errorf("%d bytes were sent again", sent)
	}
}

func TestErrors_HaveTheKindOfTheServicesCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		status int
		kind   storage.Kind
		hint   string
	}{
		"RequestTimeTooSkewed": {403, storage.Clock, "NTP"},
		"ExpiredToken":         {400, storage.Expired, "renew"},
		"AccessDenied":         {403, storage.Denied, "docs/storage.md"},
		"SlowDown":             {503, storage.Busy, "slots"},
		"InternalError":        {500, storage.Unavailable, "again"},
		"SomethingElse":        {502, storage.Unavailable, "again"},
		"XMinioStorageFull":    {507, storage.Full, "quota"},
		"QuotaExceeded":        {403, storage.Full, "quota"},
		"NotImplemented":       {501, storage.Unsuitable, "docs/storage.md"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(want.status)
			_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>a\nb</Message></Error>")
		}))
		b := open(t, "s3://videos", with(keys, "AWS_ENDPOINT_URL", server.URL), storage.Options{Tries: 1})
		_, err := b.PutArtifact(t.Context(), "a", t.TempDir(), nil)
		checkKind(t, code, err, want.kind, want.hint)
		_, err = b.WriteDocument(t.Context(), "a", nil, "")
		checkKind(t, code, err, want.kind, want.hint)
		server.Close()
	}
}

// keys are an environment with credentials only.
func keys(name string) string {
	return map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
}

func TestErrors_OfACancelledContextAreItsCause(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	proxy.Inject(func(int, *http.Request) s3test.Fault { return s3test.NoAnswer })
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), storage.Options{})
	cause := errors.New("the lease was lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	proxy.Observe(func(int, *http.Request) { cancel(cause) }, nil)
	if _, err := b.PutArtifact(ctx, "a", t.TempDir(), nil); !errors.Is(err, cause) {
		t.Error(err)
	}
	if _, err := b.GetArtifact(ctx, "a", newDir(t), nil, nil); !errors.Is(err, cause) {
		t.Error(err)
	}
}

func TestCredentials_AreReadAgainWhenTheyAreRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(secret string) {
		text := "[default]\naws_access_key_id = x\n[cuelight]\naws_access_key_id = " + s3test.AccessKey +
			"\naws_secret_access_key = " + secret + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	b := open(t, "s3://"+bucketName+"?profile=cuelight&credentials="+file, s.Env(), storage.Options{})
	_, err := b.WriteDocument(t.Context(), "a", nil, "")
	checkKind(t, "old", err, storage.Credentials, "credentials file")
	write(s3test.SecretKey)
	if _, err := b.WriteDocument(t.Context(), "a", nil, ""); err != nil {
		t.Error(err)
	}
}

func TestOpen_RefusesMissingCredentialsAndCertificates(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		env  environment
		kind storage.Kind
		hint string
	}{
		"no credentials":          {func(string) string { return "" }, storage.Credentials, "AWS_SHARED_CREDENTIALS_FILE"},
		"no file of certificates": {with(keys, "AWS_CA_BUNDLE", "/nowhere"), storage.Certificate, "PEM"},
		"no certificate":          {with(keys, "AWS_CA_BUNDLE", empty), storage.Certificate, "PEM"},
	} {
		a, err := storage.ParseAddress("s3://videos", with(test.env, "AWS_SHARED_CREDENTIALS_FILE", empty))
		if err != nil {
			t.Fatal(err)
		}
		_, err = storage.Open(a, storage.Options{})
		checkKind(t, name, err, test.kind, test.hint)
	}
}
