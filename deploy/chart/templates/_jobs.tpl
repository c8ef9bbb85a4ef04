{{- /* What the jobs before an installation or upgrade need exists before them, and is deleted after them. */ -}}
{{- define "counterpoint.before-jobs" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: "-10"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* The pod of a job: (list $ "migrate" "module"). */ -}}
{{- define "counterpoint.job" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- include "counterpoint.pod" . }}
containers:
  - name: {{ $name }}
    image: {{ include "counterpoint.image" (list $root "memory") }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [python, -m, {{ index . 2 }}]
    securityContext:
      {{- include "counterpoint.container-security" . | nindent 6 }}
    env:
      {{- if eq $name "provision" }}
      {{- include "counterpoint.bus" (list $root "provisioner") | nindent 6 }}
      {{- include "counterpoint.variable" (list "COUNTERPOINT_STREAMS_BYTES" (include "counterpoint.value" $root.Values.nats.streamsBytes)) | nindent 6 }}
      {{- end }}
      {{- with (index $root.Values.settings "COUNTERPOINT_LOG_LEVEL") }}
      {{- include "counterpoint.variable" (list "COUNTERPOINT_LOG_LEVEL" .) | nindent 6 }}
      {{- end }}
      {{- include "counterpoint.secret-variables" (list $root $name) | nindent 6 }}
    resources:
      {{- toYaml $root.Values.jobs.resources | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- if and (eq $name "provision") $root.Values.nats.ca.secret }}
      - {name: nats-ca, mountPath: /etc/counterpoint/nats, readOnly: true}
      {{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  {{- if eq $name "provision" }}
  {{- include "counterpoint.nats-ca" . | nindent 2 }}
  {{- end }}
{{- end -}}
