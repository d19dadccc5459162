package video

import (
	"encoding/json"
	"testing"
)

func TestBucket_SendsRenditionsOnce(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	host := h.host()
	sent := make(map[string]int64)
	for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
		h.proxy.Reset()
		if err := h.run(host, stage); err != nil {
			t.Fatalf("%s: %v", stage, err)
		}
		sent[stage], _ = h.proxy.Bytes()
	}
	var made Assemble
	if err := json.Unmarshal(h.results[assembleStage], &made); err != nil {
		t.Fatal(err)
	}
	t.Logf("sent %v; %d bytes were published", sent, made.Bytes)
	// Assemble writes manifests and metadata.json, and the lists of artifacts have all names.
	if sent[transcodeStage] < made.Bytes/2 || sent[assembleStage]+sent[publishStage] > made.Bytes/4 {
		t.Errorf("sent %v; %d bytes were published", sent, made.Bytes)
	}
}
