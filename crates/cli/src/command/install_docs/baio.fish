
# The segments of a volume, as they are typed.
function __baio_segments
    set -l word (commandline -ct)
    string match -q '*#*' -- $word; or return
    set -l typed (string split -m 1 '#' -- $word)[1]
    set -l volume (string replace -r '^[a-z]+=' '' -- $typed)
    baio list $volume 2>/dev/null |
        awk -v before=$typed -v me=(id -u) 'NR > 1 { print before "#" ($2 == me ? "" : $2 "/") $1 }'
end

complete -c baio -a '(__baio_segments)'
complete -c baio -n '__fish_seen_subcommand_from dd' -a 'OPERANDS'
