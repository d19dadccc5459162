package web_test

import (
	"testing"
)

func TestUploadProblems_HaveTheTitlesOfTheirTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type problem struct{ Type, Title string }
	for name, of := range map[string][2]call{
		"invalid-request": {
			{method: "GET", path: api + "/tasks?stats=x"}, {method: "PUT", path: api + "/uploads/a.mp4", body: ""},
		},
		"not-found": {{method: "GET", path: api + "/tasks/x"}, {method: "GET", path: api + "/uploads/x"}},
	} {
		var api, upload problem
		for i, to := range []*problem{&api, &upload} {
			g := b.do(of[i])
			g.wantStatus(g.status, to)
		}
		if api != upload || api.Type != "urn:cuelight:problem:"+name || api.Title == "" {
			t.Errorf("%s: the API says %+v, uploads %+v", name, api, upload)
		}
	}
}
