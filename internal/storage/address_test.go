package storage_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cuelight/cuelight/internal/storage"
)

func TestParseAddress_TakesOptionsFromTheAddressAndTheEnvironment(t *testing.T) {
	t.Parallel()
	for text, test := range map[string]struct {
		env  map[string]string
		want storage.Address
	}{
		"s3://videos": {nil, storage.Address{Bucket: "videos", Endpoint: "https://s3.amazonaws.com", VirtualHost: true}},
		"s3://my.videos/a/b/": {
			map[string]string{"AWS_ENDPOINT_URL": "http://10.0.0.1:9000", "AWS_DEFAULT_REGION": "eu", "AWS_CA_BUNDLE": "/ca"},
			storage.Address{Bucket: "my.videos", Prefix: "a/b", Endpoint: "http://10.0.0.1:9000", Region: "eu", CAFile: "/ca"},
		},
		"s3://videos/x?endpoint=https://s3.example&style=virtual-host&region=r&ca=/c&credentials=/f&profile=p": {
			map[string]string{
				"AWS_ENDPOINT_URL": "http://other", "AWS_REGION": "other", "AWS_CA_BUNDLE": "/other", "AWS_PROFILE": "other",
				"AWS_SHARED_CREDENTIALS_FILE": "/other",
			},
			storage.Address{
				Bucket: "videos", Prefix: "x", Endpoint: "https://s3.example", Region: "r", VirtualHost: true, CAFile: "/c",
				CredentialsFile: "/f", Profile: "p",
			},
		},
		"s3://videos?style=path": {
			map[string]string{
				"AWS_ENDPOINT_URL_S3": "https://s3.eu-west-1.amazonaws.com", "AWS_ENDPOINT_URL": "http://other", "AWS_REGION": "eu-west-1",
				"AWS_SHARED_CREDENTIALS_FILE": "/f", "AWS_PROFILE": "p",
			},
			storage.Address{
				Bucket: "videos", Endpoint: "https://s3.eu-west-1.amazonaws.com", Region: "eu-west-1", CredentialsFile: "/f", Profile: "p",
			},
		},
		"s3://videos?endpoint=http://h/": {nil, storage.Address{Bucket: "videos", Endpoint: "http://h/", Region: "us-east-1"}},
	} {
		got, err := storage.ParseAddress(text, func(name string) string { return test.env[name] })
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(storage.Address{})); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestParseAddress_RefusesWhatIsAmbiguous(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "/var/lib", "http://videos", "s3:videos", "s3://", "s3:///a", "s3://videos:9000/a", "s3://key:secret@videos/a",
		"s3://videos/a/../b", "s3://videos/a//b", "s3://videos#a", "s3://videos?colour=red", "s3://videos?style=round",
		"s3://videos?endpoint=s3.example", "s3://videos?endpoint=https://s3.example/path", "s3://videos?endpoint=https://k:s@h",
		"s3://videos?a;b", "s3://videos/%zz",
	} {
		if a, err := storage.ParseAddress(text, keys); err == nil {
			t.Errorf("%q is %+v", text, a)
		}
	}
}

func TestParseAddress_SaysWhatIsWrongWithTheEndpoint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ options, variable, value, want string }{
		{"", "AWS_ENDPOINT_URL", "10.0.0.1:9000", "AWS_ENDPOINT_URL has no scheme: write https://10.0.0.1:9000, or http://10.0.0.1:9000 if"},
		{"", "AWS_ENDPOINT_URL_S3", "s3.example", "AWS_ENDPOINT_URL_S3 has no scheme: write https://s3.example"},
		{"?endpoint=localhost:9000", "AWS_ENDPOINT_URL", "http://h", "the option endpoint has no scheme: write https://localhost:9000"},
		{"", "AWS_ENDPOINT_URL", "http://a b", "AWS_ENDPOINT_URL is not the URL of a service: it must be https://HOST"},
		{"", "AWS_ENDPOINT_URL", "ftp://h", "AWS_ENDPOINT_URL is not the URL of a service"},
		{"?endpoint=https://k:secret@h", "", "", "the option endpoint is not the URL of a service"},
		{"", "AWS_ENDPOINT_URL", "k:secret@h", "AWS_ENDPOINT_URL is not the URL of a service"},
	} {
		_, err := storage.ParseAddress("s3://videos"+test.options, with(keys, test.variable, test.value))
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("s3://videos/a?endpoint=https://s3.example&style=path")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := storage.ParseAddress(text, keys)
		if err != nil {
			return
		}
		again, err := storage.ParseAddress(a.String(), keys)
		if err == nil && (again.Bucket != a.Bucket || again.Prefix != a.Prefix) {
			t.Errorf("%q is %+v, printed as %q, read as %+v", text, a, a.String(), again)
		}
	})
}
