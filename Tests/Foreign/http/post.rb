# Posts a file with Net::HTTP: its bytes, and in chunks, over one connection.
require "net/http"

url, token, path = ARGV
uri = URI(url)
Net::HTTP.start(uri.host, uri.port, nil) do |http|
  [false, true].each do |in_chunks|
    request = Net::HTTP::Post.new(uri, "Authorization" => "Bearer #{token}", "Content-Type" => "application/x-ndjson")
    if in_chunks
      request["Transfer-Encoding"] = "chunked"
      request.body_stream = File.open(path, "rb")
    else
      request.body = File.binread(path)
    end
    puts "net/http #{http.request(request).code}"
  end
end
