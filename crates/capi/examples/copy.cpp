// Copies a file with 32 requests in flight, with handles that close themselves:
// c++ -std=c++17 copy.cpp $(pkg-config --cflags --libs baio) -o copy && ./copy FROM TO
#include <baio.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::size_t depth = 32, chunk = 256 << 10;

void check(std::int64_t result) {
    if (result < 0)
        throw std::runtime_error(baio_error_message());
}

template <auto close> struct Closes {
    template <typename T> void operator()(T *handle) const { close(handle); }
};
using Link = std::unique_ptr<baio_link, Closes<baio_link_close>>;
using File = std::unique_ptr<baio_file, Closes<baio_file_close>>;
using Buffer = std::unique_ptr<baio_buffer, Closes<baio_buffer_free>>;

Link open_link() {
    baio_link *link;
    check(baio_link_open(&link, BAIO_LINK_SERVICE, nullptr, nullptr));
    return Link(link);
}

File open_file(const Link &link, const char *path, std::uint32_t flags) {
    baio_file *file;
    check(baio_file_open(link.get(), path, flags, BAIO_MODE_DEFAULT, &file));
    return File(file);
}

Buffer new_buffer(const Link &link) {
    baio_buffer *buffer;
    check(baio_buffer_new(link.get(), chunk, &buffer));
    return Buffer(buffer);
}

void copy(const char *from_path, const char *to_path) {
    std::vector<Buffer> buffers; // Given back last: a link that closes gives them back before.
    Link link = open_link();
    File from = open_file(link, from_path, BAIO_OPEN_READ);
    File to = open_file(link, to_path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE | BAIO_OPEN_TRUNCATE);
    std::int64_t size = baio_file_size(from.get());
    check(size);

    std::uint64_t next = 0;
    std::vector<baio_request> requests(depth, baio_request());
    std::size_t in_flight = 0;
    auto read = [&](baio_request &request) {
        if (next >= std::uint64_t(size))
            return false;
        request.op = BAIO_OP_READ, request.file = from.get(), request.length = 0, request.offset = next;
        next += chunk;
        check(baio_submit(link.get(), &request, 1, nullptr));
        return true;
    };
    for (baio_request &request : requests) {
        buffers.push_back(new_buffer(link));
        request.buffer = buffers.back().get(), request.tag = std::uint64_t(&request - requests.data());
        in_flight += read(request);
    }
    while (in_flight > 0) {
        baio_outcome ended;
        check(baio_reap(link.get(), &ended, 1, 1, -1));
        check(ended.result);
        baio_request &request = requests[ended.tag];
        if (request.op == BAIO_OP_READ && ended.result > 0) {
            request.op = BAIO_OP_WRITE, request.file = to.get(), request.length = std::uint64_t(ended.result);
            check(baio_submit(link.get(), &request, 1, nullptr));
        } else if (!read(request)) {
            in_flight--;
        }
    }
    baio_request sync = baio_request();
    sync.op = BAIO_OP_SYNC, sync.file = to.get(), sync.durable = BAIO_DURABLE_DATA;
    check(baio_run(link.get(), &sync, nullptr));
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3)
        return std::fprintf(stderr, "usage: copy FROM TO\n"), 2;
    std::error_code one_is_missing;
    if (std::filesystem::equivalent(argv[1], argv[2], one_is_missing))
        return std::fprintf(stderr, "copy: %s and %s are one file\n", argv[1], argv[2]), 1;
    try {
        copy(argv[1], argv[2]);
    } catch (const std::exception &error) {
        return std::fprintf(stderr, "copy: %s\n", error.what()), 1;
    }
}
