package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/storage/s3test"
)

func TestDoctor_ChecksBuckets(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{TLS: true})
	s.MakeBucket(t, "videos")
	p := newWorkDir(t)
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CA_BUNDLE"} {
		p.env = append(p.env, name+"="+s.Env()(name))
	}
	check := func(code int, name, status, detail, fix string, args ...string) {
		t.Helper()
		for _, f := range decode[finding](p.run(code, append([]string{"doctor", "--json"}, args...)...)) {
			if f.Check != name {
				continue
			}
			if f.Status != status || !strings.Contains(f.Detail, detail) || !strings.Contains(f.Fix, fix) {
				t.Errorf("%s: %+v", args, f)
			}
			return
		}
		t.Errorf("%s: no finding of %s", args, name)
	}
	check(0, "data", "ok", "conditional write", "", "--data-dir", "s3://videos/data")
	check(0, "published", "ok", "s3://videos at https", "", "--publish-dir", "s3://videos")
	check(1, "published", "failed", "nowhere does not exist", "create it", "--publish-dir", "s3://nowhere")
	check(1, "published", "failed", "unknown option", "docs/storage.md", "--publish-dir", "s3://videos?colour=red")
	s3 := p.env
	p.env = append(slices.Clone(s3), "AWS_ENDPOINT_URL=http://"+s.Host())
	check(1, "data", "failed", "speaks https, not http", "AWS_ENDPOINT_URL", "--data-dir", "s3://videos")
	p.env = append(slices.Clone(s3), "AWS_ENDPOINT_URL="+s.Host())
	check(1, "data", "failed", "AWS_ENDPOINT_URL has no scheme", "docs/storage.md", "--data-dir", "s3://videos")
	p.env = append(slices.Clone(s3), "AWS_SECRET_ACCESS_KEY=")
	check(1, "data", "failed", "AWS_SECRET_ACCESS_KEY is not", "set both", "--data-dir", "s3://videos")
	p.env = s3
	r := p.run(2, "serve", "--publish-dir", "s3://videos?colour=red")
	if !strings.Contains(r.stderr(), `unknown option "colour"`) {
		t.Error(r.stderr())
	}
}
